#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/run/run_session.h"
#include "cli/run/script_job.h"
#include "operator/core/job/local_rules.h"
#include "operator/core/job/validate.h"
#include "operator/edge/local/yaml.h"

namespace crowdsurf::cli {
namespace {

using controller::Manifest;
using controller::Violation;
using nlohmann::json;

std::string Located(const std::string& file, const Violation& violation) {
  return file + ":" + (violation.line > 0 ? std::to_string(violation.line) + ":" : "") + " " +
         violation.Text();
}

// The flags stand in for what the manifest says; a mistake in them is reported at the field.
void Apply(const RunOptions& options, json& document) {
  if (!document.is_object() || !document.contains("spec") || !document["spec"].is_object()) return;
  json& spec = document["spec"];
  if (options.workers) {
    spec["replicas"] = *options.workers;
    // The manifest's bounds belong to its own number and would refuse the flag's.
    spec.erase("minReplicas");
    spec.erase("maxReplicas");
  }
  if (!options.strategy.empty() && (!spec.contains("averaging") || spec["averaging"].is_object())) {
    spec["averaging"]["strategy"] = options.strategy;
  }
  if (options.samples) spec["target"] = {{"samples", *options.samples}};
  if (options.duration) spec["target"] = {{"seconds", options.duration->seconds()}};
}

// What is wrong with one of them; empty: nothing, as far as can be seen.
std::string TextProblem(const std::string& path) {
  struct stat facts = {};
  if (stat(path.c_str(), &facts) != 0) {
    if (errno != ENOENT) return std::string(" cannot be read: ") + std::strerror(errno);
    return " is not there (on Debian: apt-get install fortunes)";
  }
  const bool folder = S_ISDIR(facts.st_mode);
  if (!folder && !S_ISREG(facts.st_mode)) return " is neither a file nor a folder";
  if (access(path.c_str(), folder ? R_OK | X_OK : R_OK) != 0) {
    return std::string(" cannot be read: ") + std::strerror(errno);
  }
  return !folder && facts.st_size == 0 ? " is empty" : "";
}

// Paths of text that the trainer is to read: said before eight trainers crash over them.
void CheckText(const std::string& file, const controller::TrainingJobSpec& spec,
               std::vector<std::string>& problems) {
  const json* container = controller::TrainerContainer(spec.pod_template);
  if (container == nullptr) return;
  std::vector<std::string> words;
  for (const char* part : {"command", "args"}) {
    if (!container->contains(part)) continue;
    for (const json& word : (*container)[part]) words.push_back(word.get<std::string>());
  }
  // What lies in a volume is not there yet, or elsewhere on this machine.
  if (container->contains("volumeMounts")) return;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] != "--text") continue;
    for (size_t j = i + 1; j < words.size() && words[j].starts_with('/'); ++j) {
      const std::string problem = TextProblem(words[j]);
      if (!problem.empty()) {
        problems.push_back(file + ": the trainer's --text " + words[j] + problem);
      }
    }
  }
}

// One word is taken for a manifest, also behind --: it may have been meant as a program of PATH.
std::string OtherMeaning(const std::string& word, const Status& failed) {
  const bool bare = word.find_first_of("./") == std::string::npos;
  if (!absl::IsNotFound(failed) || !bare) return {};
  return "; a manifest ends in .yaml, and a command of one word is given by its path";
}

}  // namespace

std::optional<LocalJob> LoadJob(const RunOptions& options, std::vector<std::string>& problems) {
  const bool written = options.command.empty();
  const std::string file = written ? options.manifest : "the command's job";
  StatusOr<Manifest> manifest = written ? controller::ReadManifest(options.manifest)
                                        : controller::ReadYaml(ScriptManifest(options.command));
  if (!manifest.ok()) {
    problems.push_back(std::string(manifest.status().message()) +
                       OtherMeaning(file, manifest.status()));
    return std::nullopt;
  }
  Apply(options, manifest->document);
  std::vector<Violation> violations = controller::Validate(*manifest);
  // Only then: rules of local mode read fields that the schema may have refused.
  if (violations.empty()) violations = controller::CheckLocal(*manifest);
  for (const Violation& violation : violations) {
    problems.push_back(Located(file, violation));
  }
  if (!violations.empty()) return std::nullopt;
  LocalJob local;
  const json& document = manifest->document;
  local.job.name = document["metadata"]["name"];
  local.job.spec = controller::SpecFromJson(controller::WithDefaults(document["spec"]));
  for (const Violation& warning : controller::Warnings(*manifest)) {
    local.remarks.push_back(Located(file, warning));
  }
  for (std::string& remark : controller::LocalRemarks(local.job.spec)) {
    local.remarks.push_back(std::move(remark));
  }
  if (!written && !options.samples && !options.duration) {
    local.remarks.push_back("the job ends after " + std::to_string(kScriptSamples) +
                            " samples of all workers together; --samples and --duration change it");
  }
  CheckText(file, local.job.spec, problems);
  return local;
}

}  // namespace crowdsurf::cli
