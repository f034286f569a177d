// Validation of a TrainingJob: every violation at once, each with its path, its line and what is
// allowed; defaults; and what may change in a live job.
//
// Input is a JSON document as the user wrote it, hostile or not: nothing here throws or aborts on
// it, and the number of violations reported is bounded. Rules of one field are rows of fields.h;
// rules between fields are in validate_rules.cc and template_rules.cc. Pure, any thread.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace crowdsurf::controller {

inline constexpr size_t kMaxViolations = 100;  // a garbled file must not print a book
// Letters of a job's name: its pods are named <job>-<index>-<incarnation> and a label value holds
// 63 characters (index to 99999, incarnation to 9999999: 14 with the dashes).
inline constexpr size_t kMaxJobName = 49;

// A document with the line of every path in it ("spec.averaging.groupSize" -> 7). `lines` may be
// empty (JSON from an API server).
struct Manifest {
  nlohmann::json document;
  std::map<std::string, int> lines;
};

struct Violation {
  std::string path;
  int line = 0;  // 0: unknown
  std::string problem;

  // "spec.averaging.groupSize: 1 is below 2"
  std::string Text() const { return path + ": " + problem; }
};

// Violations of the manifest as a TrainingJob, by line and then in order of discovery; empty when
// it can be run. Kubernetes reads null as absent; so does this.
std::vector<Violation> Validate(const Manifest& manifest);

// What is legal but worth a word: fields that this strategy ignores, containers that do not run.
std::vector<Violation> Warnings(const Manifest& manifest);

// `spec` with every default of fields.h filled in, the blocks of strategies that are not chosen
// left out. Pre: Validate found nothing.
nlohmann::json WithDefaults(const nlohmann::json& spec);

// The container that trains: the one named "trainer", or the only one; nullptr otherwise.
// pod_template: a PodTemplateSpec of any shape.
const nlohmann::json* TrainerContainer(const nlohmann::json& pod_template);

}  // namespace crowdsurf::controller
