#include <cstdio>

#include "base/edge/inherited.h"
#include "cli/commands.h"
#include "cli/parse_error.h"

namespace crowdsurf::cli {
namespace {

int Refuse(const std::string& why) {
  std::fprintf(stderr, "crowdsurf: %s\nRun with --help for more information.\n", why.c_str());
  return kBadInput;
}

}  // namespace
}  // namespace crowdsurf::cli

int main(int argc, char** argv) {
  using namespace crowdsurf::cli;
  crowdsurf::TakeInherited();
  CLI::App app("Trains neural networks on spot instances as if the instances never went away.",
               "crowdsurf");
  app.set_version_flag("--version", CROWDSURF_VERSION);
  app.require_subcommand(1);
  Action action;
  for (const auto register_command : kCommands) register_command(app, action);
  if (argc > 1) {
    // Before the parser, which would only say that a command is required.
    if (const auto why = UnknownCommand(app, argv[1])) return Refuse(*why);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help, version
    return Refuse(Explain(app, error));
  }
  return action();
}
