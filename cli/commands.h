// Commands: the table of crowdsurf's subcommands.
//
// Each subcommand is one file with a Register function: it adds itself to the parser and sets
// `action` when it is the one that was parsed. A new subcommand is a declaration and a row here.
// Single thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace crowdsurf::cli {

// Does the work; returns the exit code.
using Action = std::function<int()>;

void RegisterRun(CLI::App& app, Action& action);
void RegisterSimulate(CLI::App& app, Action& action);
void RegisterStrategies(CLI::App& app, Action& action);

inline constexpr void (*kCommands[])(CLI::App&, Action&) = {RegisterRun, RegisterSimulate,
                                                            RegisterStrategies};

// Exit codes of every subcommand.
inline constexpr int kSucceeded = 0;
inline constexpr int kFailed = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kInterrupted = 130;

}  // namespace crowdsurf::cli
