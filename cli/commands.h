// Commands: the table of crowdsurf's subcommands.
//
// Each subcommand is one file with a Register function: it adds itself to the parser and sets
// `action` when it is the one that was parsed. A new subcommand is a declaration and a row here.
// Single thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "cli/run/exit_codes.h"

namespace crowdsurf::cli {

// Does the work; returns the exit code.
using Action = std::function<int()>;

void RegisterExport(CLI::App& app, Action& action);
void RegisterInit(CLI::App& app, Action& action);
void RegisterLogs(CLI::App& app, Action& action);
void RegisterRun(CLI::App& app, Action& action);
void RegisterSimulate(CLI::App& app, Action& action);
void RegisterStrategies(CLI::App& app, Action& action);

inline constexpr void (*kCommands[])(CLI::App&, Action&) = {
    RegisterRun, RegisterLogs, RegisterExport, RegisterInit, RegisterSimulate, RegisterStrategies};

}  // namespace crowdsurf::cli
