// Manifests for tests of validation: a faultless one, one with a value changed, and what is said.
//
// Owner: one test; single sequence. Documents as JSON; problems as the author reads them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/job/validate.h"

namespace crowdsurf::controller {

inline nlohmann::json Good() {
  return nlohmann::json::parse(R"({
    "apiVersion": "crowdsurf.io/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "charlm"},
    "spec": {"replicas": 8, "averaging": {"strategy": "Moshpit", "groupSize": 4, "interval": {"steps": 50}},
             "target": {"samples": 2000000},
             "template": {"spec": {"containers": [{"name": "trainer", "image": "i", "command": ["t"]}]}}}})");
}

inline std::vector<std::string> Problems(const nlohmann::json& document) {
  std::vector<std::string> out;
  for (const Violation& v : Validate({document, {}})) out.push_back(v.Text());
  return out;
}

// The manifest with one value set below spec.
inline nlohmann::json With(std::string_view pointer, const nlohmann::json& value) {
  nlohmann::json document = Good();
  document["spec"][nlohmann::json::json_pointer(std::string(pointer))] = value;
  return document;
}

}  // namespace crowdsurf::controller
