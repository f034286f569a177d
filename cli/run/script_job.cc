#include "cli/run/script_job.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "operator/core/job/validate.h"

namespace crowdsurf::cli {
namespace {

bool IsPlain(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

}  // namespace

std::string JobNameOf(const std::vector<std::string>& command) {
  const auto script = std::find_if(command.begin() + 1, command.end(), [](const std::string& word) {
    return !word.empty() && word[0] != '-';
  });
  const std::string& path = script == command.end() ? command.front() : *script;
  const std::string file = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  std::string name;
  for (char c : file.substr(0, file.rfind('.'))) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (IsPlain(c)) {
      name += c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  name.resize(std::min(name.size(), controller::kMaxJobName));
  while (!name.empty() && name.back() == '-') name.pop_back();
  // A name begins with a letter.
  return !name.empty() && name[0] >= 'a' ? name : "job";
}

std::string ScriptManifest(const std::vector<std::string>& command) {
  // JSON is YAML but for its escapes of characters beyond U+FFFF, so these stand there as they are.
  // Bytes that are no UTF-8 cannot stand in either.
  const std::string words =
      nlohmann::json(command).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return absl::StrCat(
      "apiVersion: crowdsurf.io/v1alpha1\nkind: TrainingJob\nmetadata: {name: ", JobNameOf(command),
      "}\nspec:\n"
      "  replicas: 4\n"
      "  averaging: {interval: {steps: 50}}   # of a worker, between two averages\n"
      "  target: {samples: ",
      kScriptSamples,
      "}           # of all workers together\n"
      "  template:\n"
      "    spec:\n"
      "      containers:\n"
      "      - name: trainer\n"
      "        image: localhost/crowdsurf-pytorch:0.1.0   # on a cluster: yours, with the script\n"
      "        command: ",
      words, "\n");
}

}  // namespace crowdsurf::cli
