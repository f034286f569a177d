// What an agent says of itself (docs/agent.md), and what is made of an agent that lies.
#include "operator/core/pods/agent_summary.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "operator/core/job/start_cause.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

json Said() {
  return json::parse(R"({
    "job": "charlm", "worker": "charlm-3-1", "peer": "ab", "state": "Training", "step": 41,
    "samples": 5248, "samples_per_second": 120.5, "loss": 2.25,
    "metrics": {"loss": 2.25, "accuracy": 0.5, "note": "text"},
    "view": {"epoch": 7, "hash": "0a1b2c3d", "members": 8, "radices": [4, 2], "branch": true,
             "lineage": "11223344"},
    "lineages": ["11223344", "55667788"],
    "silent_seeds": ["10.0.0.9:7946"],
    "cell": [3, 1], "averaging": 12, "job_samples": 40000, "job_seconds": 9.5, "target_met": true,
    "steward": true,
    "rounds": {"completed": 20, "fast": 11, "repaired": 3, "adopted": 2, "kept": 4, "aborted": 5,
               "orphaned": 6, "branch": 1},
    "hash_mismatches": 2, "stall_seconds": 1.5,
    "averaging_seconds": {"number": 4, "whole": 8.5, "wait_trainer": 1, "wait_peers": 2, "send": 3,
                          "receive": 4, "fold": 5, "copy": 6},
    "trouble": "no seat", "write_error": "disk full",
    "trainer": {"state": "hung", "seconds_since_step": 301.5, "tensors": "feed", "elements": 1000,
                "stacks": "Thread 1\n"},
    "waitingFor": "trainer", "waitingSeconds": 44,
    "round_seconds": {"p50": 0.25, "p95": 0.75}, "members": [],
    "started_unix": 1700000000.5, "first_step_unix": 1700000003.5, "joined_with_state": true})");
}

TEST(AgentSummaryTest, EveryKeyOfThePageIsRead) {
  const auto read = ParseSummary(Said().dump());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->worker, "charlm-3-1");
  EXPECT_EQ(read->state, "Training");
  EXPECT_EQ(read->step, 41u);
  EXPECT_EQ(read->samples, 5248u);
  EXPECT_EQ(read->samples_per_second, 120.5);
  EXPECT_EQ(read->loss, 2.25);
  EXPECT_EQ(read->metrics, (std::map<std::string, double>{{"accuracy", .5}, {"loss", 2.25}}));
  ASSERT_TRUE(read->view.has_value());
  EXPECT_EQ(read->view->epoch, 7u);
  EXPECT_EQ(read->view->hash, "0a1b2c3d");
  EXPECT_EQ(read->view->members, 8);
  EXPECT_EQ(read->view->radices, (std::vector<int>{4, 2}));
  EXPECT_TRUE(read->view->branch);
  EXPECT_EQ(read->view->lineage, "11223344");
  EXPECT_EQ(read->lineages, (std::vector<std::string>{"11223344", "55667788"}));
  EXPECT_EQ(read->silent_seeds, std::vector<std::string>{"10.0.0.9:7946"});
  EXPECT_EQ(read->cell, (std::vector<int>{3, 1}));
  EXPECT_EQ(read->averaging, 12u);
  EXPECT_EQ(read->job_samples, 40000u);
  EXPECT_TRUE(read->target_met);
  EXPECT_TRUE(read->steward);
  const SummaryRounds& rounds = read->rounds;
  EXPECT_EQ((std::vector<uint64_t>{rounds.completed, rounds.fast, rounds.repaired, rounds.adopted,
                                   rounds.kept, rounds.aborted, rounds.orphaned, rounds.branch}),
            (std::vector<uint64_t>{20, 11, 3, 2, 4, 5, 6, 1}));
  EXPECT_EQ(rounds.failed(), 15u) << "kept, aborted and orphaned";
  EXPECT_EQ(read->hash_mismatches, 2u);
  EXPECT_EQ(read->stall_seconds, 1.5);
  EXPECT_EQ(read->averagings.number, 4u);
  EXPECT_EQ(read->averagings.whole, 8.5);
  EXPECT_EQ(read->averagings.parts, (std::array<double, 6>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(read->round_p50, .25);
  EXPECT_EQ(read->round_p95, .75);
  EXPECT_EQ(read->started_unix, 1700000000.5);
  EXPECT_EQ(read->first_step_unix, 1700000003.5);
  EXPECT_TRUE(read->joined_with_state);
  EXPECT_EQ(read->trouble, "no seat");
  EXPECT_EQ(read->write_error, "disk full");
  EXPECT_TRUE(read->trainer_hangs);
  EXPECT_EQ(read->seconds_since_step, 301.5);
  EXPECT_EQ(read->trainer_stacks, "Thread 1\n");
  EXPECT_EQ(read->tensors, "feed");
  EXPECT_EQ(read->elements, 1000u);
}

TEST(AgentSummaryTest, WhatIsMissingKeepsItsDefault) {
  const auto read = ParseSummary(R"({"loss": null, "first_step_unix": null, "cell": null})");
  ASSERT_TRUE(read.has_value());
  EXPECT_FALSE(read->loss.has_value());
  EXPECT_FALSE(read->first_step_unix.has_value());
  EXPECT_FALSE(read->view.has_value());
  EXPECT_TRUE(read->cell.empty() && read->worker.empty() && !read->trainer_hangs);
  EXPECT_EQ(read->step, 0u);
  for (const char* odd : {"", "[]", "7", "{", "\"text\""}) {
    EXPECT_FALSE(ParseSummary(odd).has_value()) << odd;
  }
}

// Any worker of a job may say anything.
TEST(AgentSummaryTest, OddValuesAreNeitherTakenNorKeptWithoutBound) {
  json said = {{"worker", std::string(5000, 'w')},
               {"step", -1},
               {"samples", 1e300},
               {"averaging", "12"},
               {"target_met", "true"},
               {"cell", {1, -1}},
               {"trainer", 7}};
  for (int i = 0; i < 100; ++i) said["metrics"][std::string(300, 'm') + std::to_string(i)] = i;
  for (int i = 0; i < 100; ++i) said["metrics"]["m" + std::to_string(i)] = i;
  said["view"] = {{"radices", json(17, 2)}, {"lineage", std::string(5000, 'l')}};
  said["lineages"] = json::array({7, "", nullptr});
  for (int i = 0; i < 100; ++i) said["lineages"].push_back(std::string(5000, 'l'));
  for (int i = 0; i < 100; ++i) said["silent_seeds"].push_back(std::string(5000, 's'));
  const auto read = ParseSummary(said.dump());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->worker.size(), 256u);
  EXPECT_EQ(read->step, 0u);
  EXPECT_EQ(read->samples, 0u);
  EXPECT_EQ(read->averaging, 0u);
  EXPECT_FALSE(read->target_met);
  EXPECT_TRUE(read->cell.empty());
  EXPECT_TRUE(read->view->radices.empty()) << "no grid has so many axes";
  EXPECT_EQ(read->view->lineage.size(), 256u);
  EXPECT_EQ(read->lineages, std::vector<std::string>(8, std::string(256, 'l')));
  EXPECT_EQ(read->silent_seeds, std::vector<std::string>(32, std::string(256, 's')));
  EXPECT_LE(read->metrics.size(), 32u) << "the link has fewer slots";
  EXPECT_GE(read->metrics.size(), 30u);
  for (const auto& [name, value] : read->metrics) EXPECT_LE(name.size(), 256u);
  said["cell"] = json(16, 1'000'000);
  EXPECT_EQ(ParseSummary(said.dump())->cell.size(), 16u);
  said["cell"][0] = 1'000'001;
  EXPECT_TRUE(ParseSummary(said.dump())->cell.empty());
}

TEST(AgentSummaryTest, WhatItWaitsForIsOfAClosedSet) {
  json said = Said();
  auto read = *ParseSummary(said.dump());
  EXPECT_EQ(read.waiting_for, "trainer");
  EXPECT_EQ(read.waiting_seconds, 44);
  EXPECT_EQ(WaitOf(read), "step") << "it has registered its tensors";
  said["trainer"]["tensors"] = "";
  EXPECT_EQ(WaitOf(*ParseSummary(said.dump())), "trainer");
  for (const char* cause : {"signer", "trainer", "peers", "state", "volume"}) {
    said["waitingFor"] = cause;
    read = *ParseSummary(said.dump());
    EXPECT_EQ(WaitOf(read), cause);
    const StartCause* row = FindStartCause(cause);
    ASSERT_NE(row, nullptr) << cause;
    EXPECT_FALSE(row->reason.empty() || row->words.empty()) << cause;
  }
  for (const json& odd : {json("rain"), json("silent"), json("step"), json(3), json(nullptr),
                          json(std::string(100'000, 'x'))}) {
    said["waitingFor"] = odd;
    read = *ParseSummary(said.dump());
    EXPECT_EQ(read.waiting_for, "");
    EXPECT_EQ(read.waiting_seconds, 0);
  }
  said["waitingFor"] = "peers";
  said["waitingSeconds"] = -1e300;
  EXPECT_EQ(ParseSummary(said.dump())->waiting_seconds, 0);
}

TEST(AgentSummaryTest, ANumberOfMembersThatNoIntegerHoldsIsCut) {
  json said = Said();
  for (const auto& [members, read] : {std::pair(1e300, 1'000'000), {-5.0, 0}, {1e10, 1'000'000}}) {
    said["view"]["members"] = members;
    EXPECT_EQ(ParseSummary(said.dump())->view->members, read) << members;
  }
}

TEST(AgentSummaryTest, LastWordsSayWhatItWaitedFor) {
  const auto words = ParseLastWords(
      R"({"reason": "no certificate", "samples": 3, "waitingFor": "signer", "waitingSeconds": 60})");
  ASSERT_TRUE(words.has_value());
  EXPECT_EQ(words->reason, "no certificate");
  EXPECT_EQ(words->progress.samples, 3u);
  EXPECT_FALSE(words->progress.target_met);
  EXPECT_EQ(words->waiting_for, "signer");
  EXPECT_EQ(words->waiting_seconds, 60);
  EXPECT_FALSE(ParseLastWords("killed").has_value());
}

}  // namespace
}  // namespace crowdsurf::controller
