// `crowdsurf init SCRIPT`: writes the manifest of a job that runs a script.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "cli/commands.h"
#include "cli/run/script_job.h"

namespace crowdsurf::cli {
namespace {

int Init(const std::string& script) {
  const bool python = script.ends_with(".py");
  const bool bare = script.find('/') == std::string::npos;
  std::vector<std::string> command;
  if (python) command.push_back("python3");
  // A bare name would be looked up in PATH.
  command.push_back(!python && bare ? "./" + script : script);
  const std::string path = JobNameOf(command) + ".yaml";
  FILE* file = std::fopen(path.c_str(), "wx");  // x: never over a file that is there
  const std::string text = ScriptManifest(command);
  bool written = file != nullptr && std::fputs(text.c_str(), file) >= 0;
  // A full disk may show only here.
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (!written) {
    std::fprintf(stderr, "crowdsurf: %s: %s\n", path.c_str(), std::strerror(errno));
    return kBadInput;
  }
  std::printf("%s is written; crowdsurf run %s starts it\n", path.c_str(), path.c_str());
  return kSucceeded;
}

}  // namespace

void RegisterInit(CLI::App& app, Action& action) {
  auto script = std::make_shared<std::string>();
  CLI::App* init = app.add_subcommand("init", "Write a manifest for a training script.");
  init->add_option("SCRIPT", *script, "the script, as it is started from here")
      ->required()
      ->check(CLI::ExistingFile);
  init->callback([script, &action] { action = [script] { return Init(*script); }; });
}

}  // namespace crowdsurf::cli
