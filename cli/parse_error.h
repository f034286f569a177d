// ParseError: what a wrong command line is told, in one sentence that helps.
//
// The parser's own words list what was left over, last word first, and say "a subcommand is
// required" to a misspelt one. Pure: functions of the parser and the words. Single thread.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace crowdsurf::cli {

// A first word that is neither an option nor a command of `app`: which are there, and the one that
// was most likely meant. nullopt: it is a command, an option, or nothing.
std::optional<std::string> UnknownCommand(const CLI::App& app, const std::string& word);

// Pre: `app` has parsed, and threw `error`, no request for help. The unknown option by name with
// the nearest known one; any other error in the parser's words.
std::string Explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace crowdsurf::cli
