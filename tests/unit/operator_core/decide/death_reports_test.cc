#include "operator/core/decide/death_reports.h"

#include <gmock/gmock.h>

#include "tests/unit/operator_core/decide/world.h"

// pod-lifecycle 3.5, 3.6: "two reporters, or the whole group when smaller; confirmed by the
// operator's own probe of the agent or a node Lease older than 15 s."
namespace crowdsurf::controller {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

WallTime At(double seconds) {
  return WallTime::FromNanoseconds(1'700'000'000'000'000'000) + Seconds(seconds);
}

// A job of Ready workers, as the caches have them.
class Crowd {
 public:
  explicit Crowd(int workers, std::string job = "default/crowd") : job_(std::move(job)) {
    for (int i = 0; i < workers; ++i) {
      PodEntry pod;
      pod.job = job_;
      pod.job_uid = job_ + "-uid";
      pod.facts.name = "crowd-" + std::to_string(i) + "-1";
      pod.facts.uid = job_ + std::to_string(i);
      pod.facts.index = i;
      pod.facts.node = "node-" + std::to_string(i);
      pod.facts.phase = PodPhase::kRunning;
      pod.facts.ready_since = At(0);
      pod.http = "10.0.0." + std::to_string(i) + ":7948";
      pods.push_back(pod);
    }
  }
  ReportFate Say(DeathReports& reports, double at, size_t reporter, size_t subject) {
    return reports.Take(At(at), &pods[reporter], &pods[subject]);
  }
  DeathReports::Review Look(DeathReports& reports, double at, bool lease_stale = false) const {
    std::vector<const PodEntry*> all;
    for (const PodEntry& pod : pods) all.push_back(&pod);
    return reports.Look(At(at), job_, all, [&](const std::string&) { return lease_stale; });
  }
  bool Dead(DeathReports& reports, double at, size_t subject, bool lease_stale = false) const {
    const auto findings = Look(reports, at, lease_stale).findings;
    const auto it = findings.find(pods[subject].facts.uid);
    return it != findings.end() && it->second.dead;
  }
  std::vector<PodEntry> pods;

 private:
  std::string job_;
};

TEST(DeathReportsTest, TwoReportersAndASilentAgentAreDeath) {
  Crowd crowd(5);
  DeathReports reports;
  EXPECT_EQ(crowd.Say(reports, 0, 1, 0), ReportFate::kTaken);
  EXPECT_THAT(crowd.Look(reports, 0).probes, IsEmpty()) << "one alone is not even asked after";
  EXPECT_EQ(crowd.Say(reports, 1, 2, 0), ReportFate::kTaken);
  const auto review = crowd.Look(reports, 1);
  ASSERT_THAT(review.probes, SizeIs(1));
  EXPECT_EQ(review.probes[0].http, "10.0.0.0:7948");
  EXPECT_EQ(review.probes[0].control, "10.0.0.2:7948") << "one of those who said so";
  EXPECT_FALSE(crowd.Dead(reports, 1, 0)) << "not confirmed yet";
  EXPECT_THAT(crowd.Look(reports, 2).probes, IsEmpty()) << "one probe at a time";
  EXPECT_EQ(reports.Probed(At(3), crowd.pods[0].facts.uid, ProbeResult::kSilent), "default/crowd");
  EXPECT_TRUE(crowd.Dead(reports, 3, 0));
  EXPECT_FALSE(crowd.Dead(reports, 3, 1)) << "and nobody else";
}

TEST(DeathReportsTest, AnAgentThatAnswersLivesWhateverIsSaid) {
  Crowd crowd(5);
  DeathReports reports;
  for (const size_t reporter : {1U, 2U, 3U, 4U}) crowd.Say(reports, 0, reporter, 0);
  crowd.Look(reports, 0);
  reports.Probed(At(1), crowd.pods[0].facts.uid, ProbeResult::kAnswers);
  EXPECT_FALSE(crowd.Dead(reports, 1, 0));
  EXPECT_FALSE(crowd.Dead(reports, 1, 0, /*lease_stale=*/true)) << "a frozen kubelet";
}

TEST(DeathReportsTest, ALeaseConfirmsWhereTheProberIsCutOff) {
  Crowd crowd(5);
  DeathReports reports;
  crowd.Say(reports, 0, 1, 0);
  crowd.Say(reports, 0, 2, 0);
  crowd.Look(reports, 0);
  reports.Probed(At(1), crowd.pods[0].facts.uid, ProbeResult::kBlind);
  EXPECT_FALSE(crowd.Dead(reports, 1, 0));
  EXPECT_TRUE(crowd.Dead(reports, 1, 0, /*lease_stale=*/true));
}

TEST(DeathReportsTest, ASmallJobNeedsAllItsOthers) {
  Crowd two(2);
  DeathReports reports;
  two.Say(reports, 0, 1, 0);
  EXPECT_THAT(two.Look(reports, 0).probes, SizeIs(1)) << "the other one is the whole group";
  Crowd three(3);
  DeathReports more;
  three.Say(more, 0, 1, 0);
  EXPECT_THAT(three.Look(more, 0).probes, IsEmpty());
  three.pods[2].facts.ready_since.reset();  // starts
  EXPECT_THAT(three.Look(more, 0).probes, SizeIs(1)) << "who cannot know is not waited for";
}

TEST(DeathReportsTest, LiarsAchieveNothingAlone) {
  Crowd crowd(5);
  Crowd other(5, "default/other");
  DeathReports reports;
  for (int i = 0; i < 100; ++i) crowd.Say(reports, 0.01 * i, 1, 0);
  EXPECT_THAT(crowd.Look(reports, 1).probes, IsEmpty()) << "a hundred times is once";
  EXPECT_EQ(reports.Take(At(1), &other.pods[1], &crowd.pods[0]), ReportFate::kOtherJob);
  EXPECT_EQ(crowd.Say(reports, 1, 0, 0), ReportFate::kItself);
  EXPECT_EQ(reports.Take(At(1), nullptr, &crowd.pods[0]), ReportFate::kStranger);
  EXPECT_EQ(reports.Take(At(1), &crowd.pods[1], nullptr), ReportFate::kUnknown);
  crowd.pods[2].facts.deleted = At(0);
  EXPECT_EQ(crowd.Say(reports, 1, 2, 0), ReportFate::kStranger) << "one that is going itself";
  EXPECT_EQ(crowd.Say(reports, 1, 1, 2), ReportFate::kGone);
  EXPECT_THAT(crowd.Look(reports, 1).probes, IsEmpty());
}

TEST(DeathReportsTest, WhatIsNotSaidAgainIsForgotten) {
  Crowd crowd(5);
  DeathReports reports;
  crowd.Say(reports, 0, 1, 0);
  crowd.Say(reports, 20, 2, 0);
  EXPECT_THAT(crowd.Look(reports, 20).probes, SizeIs(1));
  reports.Probed(At(21), crowd.pods[0].facts.uid, ProbeResult::kSilent);
  EXPECT_TRUE(crowd.Dead(reports, 30, 0));
  EXPECT_FALSE(crowd.Dead(reports, 31, 0)) << "the first said it more than 30 s ago";
  crowd.Look(reports, 51);
  EXPECT_EQ(reports.cases(), 0u);
}

TEST(DeathReportsTest, AProbeGetsOldAndIsMadeAgain) {
  Crowd crowd(5);
  DeathReports reports;
  for (double at = 0; at <= 60; at += 5) {
    crowd.Say(reports, at, 1, 0);
    crowd.Say(reports, at, 2, 0);
    const bool again = !crowd.Look(reports, at).probes.empty();
    EXPECT_EQ(again, static_cast<int>(at) % 10 == 0) << at;
    if (at == 0) reports.Probed(At(1), crowd.pods[0].facts.uid, ProbeResult::kSilent);
    if (at > 0) {
      EXPECT_EQ(crowd.Dead(reports, at, 0), at <= 21) << at;
    }
  }
}

TEST(DeathReportsTest, CasesOfThoseThatGoAreClosedAndTheTableIsBounded) {
  Crowd crowd(static_cast<int>(DeathReports::kMaxCases) + 3);
  DeathReports reports;
  for (size_t i = 1; i < crowd.pods.size(); ++i) crowd.Say(reports, 0, 0, i);
  EXPECT_EQ(reports.cases(), DeathReports::kMaxCases);
  EXPECT_EQ(crowd.Say(reports, 0, 0, crowd.pods.size() - 1), ReportFate::kFull);
  EXPECT_EQ(crowd.Say(reports, 31, 0, crowd.pods.size() - 1), ReportFate::kTaken)
      << "room is made of what is old";
  for (size_t i = 1; i <= DeathReports::kMaxReporters; ++i) {
    EXPECT_EQ(crowd.Say(reports, 31, i, 0), ReportFate::kTaken);
  }
  EXPECT_EQ(crowd.Say(reports, 31, 20, 0), ReportFate::kFull);
  for (PodEntry& pod : crowd.pods) pod.facts.deleted = At(31);
  crowd.Look(reports, 31);
  EXPECT_EQ(reports.cases(), 0u);
}

TEST(LeaseAgeTest, IsSeenByWatchingIt) {
  LeaseAge lease;
  EXPECT_FALSE(lease.Stale());
  lease.Saw(At(0), "a");
  EXPECT_FALSE(lease.Stale()) << "how old it was before is not known";
  lease.Saw(At(15), "a");
  EXPECT_FALSE(lease.Stale());
  lease.Saw(At(16), "a");
  EXPECT_TRUE(lease.Stale());
  lease.Saw(At(17), "b");
  EXPECT_FALSE(lease.Stale());
}

// ---- what Decide makes of it --------------------------------------------------------------------

World WithReported(int workers, int dead, bool stale = false) {
  World world = Running(workers);
  for (int i = 0; i < dead; ++i) {
    PodFacts& pod = world.pods.at(PodName("job", i, 1));
    pod.reported_dead = true;
    pod.lease_stale = stale;
  }
  return world;
}

TEST(JudgeReportsTest, ATenthOfAJobIsReplacedAMinuteAndNoMore) {
  World world = WithReported(30, 10);
  size_t deleted = 0, created = 0;
  for (int second = 0; second < 60; ++second) {
    const Plan plan = world.Reconcile();
    deleted += plan.deletes.size();
    created += plan.creates.size();
    EXPECT_LE(plan.requeue_at, world.now + Seconds(60)) << "wakes for the next portion";
    if (second == 10) world.Bury();  // that a corpse is gone makes no room for another
    world.StartAll();
    world.Wait(Seconds(1));
  }
  EXPECT_EQ(deleted, 3u);
  EXPECT_EQ(created, 3u) << "who may not be deleted yet is not replaced either";
  EXPECT_EQ(world.snapshot.status.disruptions, 3);
  EXPECT_THAT(world.Reconcile().deletes, SizeIs(3)) << "the next minute";
}

TEST(JudgeReportsTest, WhatTheApiShowsIsReplacedAtOnce) {
  World world = WithReported(30, 10, /*stale=*/true);
  world.snapshot.suspect_nodes = {"node-job-0-1"};
  const Plan plan = world.Reconcile();
  EXPECT_THAT(plan.deletes, SizeIs(10));
  ASSERT_THAT(plan.creates, SizeIs(10));
  EXPECT_THAT(plan.creates[0].avoid_nodes, testing::ElementsAre("node-job-0-1"));
  EXPECT_EQ(world.snapshot.status.disruptions_by_reason.at("PeersReportedDead"), 10);
}

TEST(JudgeReportsTest, WhenMostAreReportedNothingHappensAndAConditionSaysSo) {
  for (const bool stale : {false, true}) {
    World world = WithReported(10, 6, stale);
    Plan plan = world.Reconcile();
    EXPECT_THAT(plan.deletes, IsEmpty());
    EXPECT_THAT(plan.creates, IsEmpty());
    EXPECT_EQ(plan.status.disruptions, 0);
    EXPECT_TRUE(plan.status.Is(ConditionType::kPartitioned));
    EXPECT_EQ(plan.status.Find(ConditionType::kPartitioned)->reason, reason::kMaxPeersReportedDead);
    for (auto& [name, pod] : world.pods) pod.reported_dead = false;
    plan = world.Reconcile();
    EXPECT_FALSE(plan.status.Is(ConditionType::kPartitioned)) << "it has healed";
    EXPECT_THAT(plan.deletes, IsEmpty());
  }
}

TEST(JudgeReportsTest, TheKubeletsSilenceIsNotHeldBackByAPartition) {
  World world = WithReported(10, 6);
  for (int i = 0; i < 6; ++i) {
    world.nodes.at("node-" + PodName("job", i, 1)).not_ready_since = world.now;
  }
  EXPECT_THAT(world.Reconcile().deletes, IsEmpty());
  world.Wait(world.snapshot.job.spec.disruption.tolerated_unreachable);
  EXPECT_THAT(world.Reconcile().deletes, SizeIs(6));
}

TEST(JudgeReportsTest, OneThatProvesToLiveKeepsItsPlaceAndTheNewestGoes) {
  World world = WithReported(10, 1);
  Plan plan = world.Reconcile();
  ASSERT_THAT(plan.deletes, SizeIs(1));
  // The delete never reached the API server, and its peers hear it again.
  PodFacts& pod = world.pods.at("job-0-1");
  pod.deleted.reset();
  pod.reported_dead = false;
  plan = world.Reconcile();
  ASSERT_THAT(plan.deletes, SizeIs(1));
  EXPECT_EQ(plan.deletes[0].name, "job-0-2");
  EXPECT_EQ(plan.deletes[0].reason, reason::kSurplus);
}

}  // namespace
}  // namespace crowdsurf::controller
