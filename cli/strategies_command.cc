// `crowdsurf strategies`: which there are, and when to choose which.
#include <cstdio>

#include "cli/commands.h"

namespace crowdsurf::cli {
namespace {

struct StrategyRow {
  const char* name;
  const char* when;
  const char* needs;
};

constexpr StrategyRow kRows[] = {
    {"Moshpit", "the default: everybody can reach everybody, workers come and go",
     "groups of at most averaging.groupSize"},
    {"AllReduce", "a fast, stable network", "at most 64 workers"},
    {"Gossip", "no waiting for a group; gossip.mode: Pairs, or Neighbours of a graph",
     "1 more copy of the model, or one a neighbour"},
    {"A2CiD2", "few fixed links (a ring of sites, one gateway), similar data",
     "a sparse graph; 2 more copies of the model"},
    {"RelaySum", "a fixed tree of links, very different data at each worker",
     "a tree; a copy of the model a neighbour; interval.steps 1 is best"},
    {"PowerGossip", "thin links, large matrices, similar data",
     "a graph; a few vectors a matrix and neighbour; interval.steps 1 is best"},
    {"IST", "wide hidden layers, thin links: each worker trains a smaller model",
     "a trainer with unit groups; at most 64 workers; 1 more copy of the model"},
};

int PrintStrategies() {
  for (const StrategyRow& row : kRows) {
    std::printf("%-11s %s\n%-11s needs: %s\n", row.name, row.when, "", row.needs);
  }
  std::printf(
      "\nIn the manifest: spec.averaging.strategy; on the command line: crowdsurf run "
      "JOB.yaml --strategy NAME.\n");
  return kSucceeded;
}

}  // namespace

void RegisterStrategies(CLI::App& app, Action& action) {
  app.add_subcommand("strategies", "Ways to mix, and when to choose which.")->callback([&action] {
    action = PrintStrategies;
  });
}

}  // namespace crowdsurf::cli
