#include <cstdio>

#include "cli/commands.h"

int main(int argc, char** argv) {
  using namespace crowdsurf::cli;
  CLI::App app("Trains neural networks on spot instances as if the instances never went away.",
               "crowdsurf");
  app.set_version_flag("--version", CROWDSURF_VERSION);
  app.require_subcommand(1);
  Action action;
  for (const auto register_command : kCommands) register_command(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kSucceeded : kBadInput;
  }
  return action();
}
