#include "cli/parse_error.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/manifest/fields.h"

namespace crowdsurf::cli {
namespace {

std::string Suggestion(const std::string& word, const std::vector<std::string>& known) {
  const std::vector<std::string_view> names(known.begin(), known.end());
  const std::string_view near = manifest::NearestName(word, names);
  return near.empty() ? std::string() : "; did you mean " + std::string(near) + "?";
}

// The innermost command that was given.
const CLI::App& Parsed(const CLI::App& app) {
  const std::vector<CLI::App*> given = app.get_subcommands();
  return given.empty() ? app : Parsed(*given.front());
}

}  // namespace

std::optional<std::string> UnknownCommand(const CLI::App& app, const std::string& word) {
  // An option, which Explain names.
  if (word.empty() || word[0] == '-') return std::nullopt;
  std::vector<std::string> names;
  std::string list;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name() == word) return std::nullopt;
    names.push_back(command->get_name());
    list += (list.empty() ? "" : ", ") + command->get_name();
  }
  const std::string near = Suggestion(word, names);
  // Where a name is near, the list of all would only hide it.
  return word + " is not a command" + (near.empty() ? "; there are " + list : near);
}

std::string Explain(const CLI::App& app, const CLI::ParseError& error) {
  // Words that the parser could not place are left in the innermost command, or above it.
  const CLI::App& command = Parsed(app);
  const std::vector<std::string> left = app.remaining(/*recurse=*/true);
  const auto option = std::find_if(left.begin(), left.end(), [](const std::string& word) {
    return word.size() > 1 && word[0] == '-';
  });
  for (const std::string& word : left) {  // "simulate chos": the parser misses a command
    if (command.get_subcommands(nullptr).empty()) break;
    if (const auto why = UnknownCommand(command, word)) return *why;
  }
  if (option == left.end()) return error.what();
  std::vector<std::string> names;
  for (const CLI::Option* known : command.get_options())
    for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
  const std::string name = option->substr(0, option->find('='));
  if (std::find(names.begin(), names.end(), name) != names.end())
    // Known, but given too early: the parser reads options of a command behind its name.
    return name + " goes behind " + command.get_name();
  return name + ": unknown option of " + command.get_name() + Suggestion(name, names);
}

}  // namespace crowdsurf::cli
