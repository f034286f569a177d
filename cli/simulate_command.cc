#include <absl/strings/numbers.h>

#include <cstdio>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "simulator/chaos/chaos_command.h"
#include "simulator/lock_step/averaging_command.h"

namespace crowdsurf::cli {
namespace {

int PrintResult(int code, const std::string& text) {
  // Figures of seeds that failed are a result, for a pipe; only a wrong flag is an error.
  std::fputs(text.c_str(), code == kBadInput ? stderr : stdout);
  return code;
}

// "3..9" or "5"; false: neither.
bool ParseMembers(const std::string& text, simulator::ChaosCommand& command) {
  const size_t dots = text.find("..");
  const std::string least = text.substr(0, dots);
  const std::string most = dots == std::string::npos ? least : text.substr(dots + 2);
  return absl::SimpleAtoi(least, &command.min_members) &&
         absl::SimpleAtoi(most, &command.max_members);
}

void RegisterAveraging(CLI::App& simulate, Action& action) {
  auto command = std::make_shared<simulator::AveragingCommand>();
  simulator::AveragingOptions& options = command->averaging;
  CLI::App* app = simulate.add_subcommand(
      "averaging", "Rounds until all peers agree, by the core's grid, stand-ins and catch-up.");
  app->add_option("--peers", options.peers, "how many average")->capture_default_str();
  app->add_option("--group-size", options.group_size, "the most peers of a group")
      ->capture_default_str();
  app->add_option("--failure-rate", options.failure_rate, "a peer misses a round with this chance")
      ->capture_default_str();
  app->add_option("--target", options.target, "variance over all peers")->capture_default_str();
  app->add_option("--seeds", command->seeds, "how many")->capture_default_str();
  app->add_option("--seed", command->first_seed, "the first")->capture_default_str();
  app->add_flag("--json", command->json, "the figures as one line of JSON");
  app->callback([command, &action] {
    action = [command] {
      std::string text;
      const int code = simulator::RunSimulateAveraging(*command, text);
      return PrintResult(code, text);
    };
  });
}

void RegisterChaos(CLI::App& simulate, Action& action) {
  auto command = std::make_shared<simulator::ChaosCommand>();
  // As text, since the parser knows no ranges.
  auto members = std::make_shared<std::string>("3..9");
  CLI::App* app = simulate.add_subcommand(
      "chaos", "Whole jobs under faults drawn from seeds, checked from outside.");
  app->add_option("--seed", command->seed, "the first")->capture_default_str();
  app->add_option("--seeds", command->seeds, "how many")->capture_default_str();
  app->add_option("--members", *members, "MIN..MAX, within 1..64")->capture_default_str();
  app->add_option("--threads", command->threads, "seeds at a time; the figures are the same")
      ->capture_default_str()
      ->check(CLI::Range(1U, 256U));
  auto* outer = app->add_flag("--outer", command->outer, "every job has an outer optimizer");
  auto* ist = app->add_flag("--ist", command->ist, "every job has IST")->excludes(outer);
  auto* int8 =
      app->add_flag("--int8", command->int8, "every job sends changes as Int8")->excludes(ist);
  auto* one_round = app->add_flag("--one-round", command->one_round, "every job has rounds: One")
                        ->excludes(outer)
                        ->excludes(ist)
                        ->excludes(int8);
  app->add_option("--strategy", command->strategy, "every job has that strategy on a graph")
      ->check(CLI::IsMember({"Gossip", "A2CiD2", "RelaySum", "PowerGossip"}))
      ->excludes(outer, ist, int8, one_round);
  app->add_flag("--first", command->first, "every job starts from one trainer's parameters");
  app->add_flag("--json", command->json, "the figures as one line of JSON");
  app->add_flag("--log", command->log, "what the agents of the first seed say");
  app->callback([command, members, &action] {
    action = [command, members] {
      if (!ParseMembers(*members, *command))
        return PrintResult(kBadInput, "--members: \"" + *members + "\" is not MIN..MAX\n");
      std::string text;
      const int code = simulator::RunSimulateChaos(*command, text);
      return PrintResult(code, text);
    };
  });
}

}  // namespace

void RegisterSimulate(CLI::App& app, Action& action) {
  CLI::App* simulate = app.add_subcommand("simulate", "The same cores under virtual time.");
  simulate->require_subcommand(1);
  RegisterAveraging(*simulate, action);
  RegisterChaos(*simulate, action);
}

}  // namespace crowdsurf::cli
