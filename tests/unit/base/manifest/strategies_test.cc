#include "base/manifest/strategies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/manifest/field_defaults.h"
#include "base/manifest/fields.h"

namespace crowdsurf::manifest {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Field& RowBelowAveraging(std::string_view name) {
  const Field* row = FindField("averaging." + std::string(name));
  EXPECT_NE(row, nullptr) << name;
  return *row;
}

std::vector<std::string> Unmet(const Needs& needs, const JobShape& job) {
  std::vector<std::string> out;
  for (const UnmetNeed& unmet : UnmetNeeds(needs, job))
    out.push_back(unmet.path + ": " + unmet.problem);
  return out;
}

TEST(NeedsTest, EachStrategyAndModeOfTheManifestHasARow) {
  for (const std::string_view strategy : SplitChoices(RowBelowAveraging("strategy").choices)) {
    for (const std::string_view mode : SplitChoices(RowBelowAveraging("gossip.mode").choices)) {
      const Needs* needs = FindNeeds(strategy, mode);
      ASSERT_NE(needs, nullptr) << strategy << mode;
      EXPECT_TRUE(needs->mode.empty() || needs->mode == mode);
      if (!needs->graph.empty()) {
        EXPECT_EQ(RowBelowAveraging(needs->graph).kind, FieldKind::kChoice);
      }
      if (!needs->overlap.empty()) {
        EXPECT_GE(IndexOf(needs->overlap, RowBelowAveraging("overlap").choices), 0);
      }
      EXPECT_EQ(!needs->graph.empty(), IndexOf(strategy, kOnGraphs) >= 0) << strategy;
    }
  }
  EXPECT_EQ(FindNeeds("Moshpot", "Pairs"), nullptr);
  EXPECT_EQ(FindNeeds("Gossip", "pairs"), nullptr);
}

TEST(NeedsTest, EveryNeedThatIsNotMetIsSaidWithItsField) {
  const Needs& relay = *FindNeeds("RelaySum", "");
  EXPECT_THAT(Unmet(relay, {"Star", 250}), IsEmpty());
  EXPECT_THAT(Unmet(relay, {"Star", 1025}),
              ElementsAre("maxReplicas: 1025 is above 1024, the most that RelaySum can hold on its "
                          "graph; Moshpit has no such limit",
                          "averaging.relaySum.tree: Star of 1025 workers is above 250: a worker "
                          "keeps something for each neighbour, and all others can be its "
                          "neighbours; DoubleBinaryTree has few at any size"));
  EXPECT_THAT(Unmet(*FindNeeds("IST", ""), {"", 65, true}),
              ElementsAre("maxReplicas: 65 is above 64, the most that strategy IST can hold in its "
                          "one group; Moshpit has no such limit",
                          "averaging.roles: OptimizerState cannot be averaged with IST: a worker's "
                          "optimizer has moments of its own units only, and starts anew at each "
                          "average"));
  EXPECT_THAT(Unmet(*FindNeeds("Moshpit", ""), {"", 1, true}), IsEmpty());
  EXPECT_THAT(Unmet(*FindNeeds("A2CiD2", ""), {"Torus", 8}),
              ElementsAre("averaging.a2cid2.graph: Torus needs at least 9 workers, this job has 8 "
                          "at most; Ring fits any number"));
  for (const int64_t none : {0, -1}) {  // below its own bound: the field's row says it
    EXPECT_THAT(Unmet(*FindNeeds("A2CiD2", ""), {"Torus", none}), IsEmpty());
    EXPECT_THAT(Unmet(*FindNeeds("Moshpit", ""), {"", none}), IsEmpty());
  }
  EXPECT_THAT(
      Unmet(*FindNeeds("AllReduce", ""), {"", 65}),
      ElementsAre(HasSubstr("maxReplicas: 65 is above 64, the most that strategy AllReduce")));
  EXPECT_THAT(Unmet(*FindNeeds("Moshpit", ""), {"", 200000}), IsEmpty())
      << "the field's row says it";
}

// A graph that the field does not have, or that is refused in its turn, would be no advice.
TEST(NeedsTest, WhatARefusalRecommendsIsAdmitted) {
  int advices = 0;
  for (const Needs& needs : kNeeds) {
    if (needs.graph.empty()) continue;
    const std::string path = "averaging." + std::string(needs.graph);
    const std::string_view choices = RowBelowAveraging(needs.graph).choices;
    for (const std::string_view graph : SplitChoices(choices)) {
      for (const int64_t workers : {1, 8, 251, 1024}) {
        for (const UnmetNeed& unmet : UnmetNeeds(needs, {graph, workers})) {
          ASSERT_EQ(unmet.path, path);
          const size_t from = unmet.problem.rfind("; ") + 2;
          const std::string advice =
              unmet.problem.substr(from, unmet.problem.find(' ', from) - from);
          EXPECT_GE(IndexOf(advice, choices), 0) << needs.strategy << " " << advice;
          EXPECT_THAT(UnmetNeeds(needs, {advice, workers}), IsEmpty()) << advice;
          ++advices;
        }
      }
    }
  }
  EXPECT_GT(advices, 10);
}

TEST(IdleFieldsTest, NameFieldsAndValuesThatTheManifestHas) {
  for (const IdleField& idle : kIdleFields) {
    const Field& where = RowBelowAveraging(idle.where);
    for (const std::string_view is : SplitChoices(idle.is))
      EXPECT_GE(IndexOf(is, where.choices), 0) << idle.where << " " << is;
    const Field& row = RowBelowAveraging(idle.field);
    if (!idle.value.empty()) {
      EXPECT_GE(IndexOf(idle.value, row.choices), 0) << idle.field;
    }
  }
}

// What trainers do whatever `overlap` says, and the word about it, are two tables.
TEST(IdleFieldsTest, OfOverlapAreTheValuesThatTheStrategyDoesNotTake) {
  for (const Needs& needs : kNeeds) {
    for (const std::string_view value : SplitChoices(RowBelowAveraging("overlap").choices)) {
      bool said = false;
      for (const IdleField& idle : kIdleFields) {
        if (idle.field == "overlap" && IndexOf(needs.strategy, idle.is) >= 0 && idle.value == value)
          said = true;
      }
      EXPECT_EQ(said, !needs.overlap.empty() && needs.overlap != value)
          << needs.strategy << " " << value;
    }
  }
}

}  // namespace
}  // namespace crowdsurf::manifest
