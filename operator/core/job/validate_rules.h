// The parts of validation behind validate.h: the walk over fields, the rules between fields and
// those of the pod template. Private to operator/core; single sequence.
// Bounds and promises are those of validate.h.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/job/json_path.h"
#include "operator/core/job/validate.h"

namespace crowdsurf::controller {

// Collects violations and knows the lines.
class Report {
 public:
  explicit Report(const Manifest& manifest) : lines_(manifest.lines) {}

  // path: of the whole document, "spec.target". The line is that of the nearest ancestor known.
  void Add(const std::string& path, std::string problem);
  std::vector<Violation> Take();

 private:
  int LineOf(std::string path) const;

  const std::map<std::string, int>& lines_;
  std::vector<Violation> violations_;
};

// As a person would write it, cut to a sensible length.
std::string Show(const nlohmann::json& value);

// One field or block of spec against its row; spec_path "" is spec itself.
void CheckFields(const nlohmann::json& spec, Report& report);
// Rules between fields of spec.
void CheckRules(const nlohmann::json& spec, Report& report);
// spec.template.
void CheckTemplate(const nlohmann::json& pod_template, Report& report);

}  // namespace crowdsurf::controller
