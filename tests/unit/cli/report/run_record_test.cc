// Figures of a run, from summaries at a known pace: each follows by hand from what they say.
#include "cli/report/run_record.h"

#include <gtest/gtest.h>

#include <cmath>

namespace crowdsurf::cli {
namespace {

using controller::AgentSummary;

AgentSummary Summary(double first_step, double rate, double now) {
  AgentSummary summary;
  summary.state = "Training";
  summary.first_step_unix = first_step;
  summary.samples_per_second = rate;
  summary.samples = static_cast<uint64_t>((now - first_step) * rate);
  return summary;
}

// Two workers at 100 samples/s for 60 s; the job gets `merged` of the 12,000 they could do.
RunFigures Paced(uint64_t merged) {
  RunRecord record(1000, 2);
  record.Created(1000, "job-0-1", 0, 1);
  record.Created(1000, "job-1-1", 1, 1);
  for (double t = 1002; t <= 1062; t += 0.5) {
    for (const char* name : {"job-0-1", "job-1-1"}) {
      AgentSummary summary = Summary(1002, 100, t);
      summary.job_samples = static_cast<uint64_t>(static_cast<double>(merged) * (t - 1002) / 60);
      record.Saw(t, name, summary, Told::kNothing);
    }
    record.Tick(t);
  }
  record.Finish(1062);
  return record.Figures();
}

TEST(RunRecordTest, GoodputIsWhatWasMergedOfWhatUndisturbedWorkersCouldDo) {
  EXPECT_NEAR(*Paced(12000).goodput, 1.0, 1e-9);
  EXPECT_NEAR(*Paced(9000).goodput, 0.75, 1e-9);
  EXPECT_EQ(*Paced(12400).goodput, 1.0) << "as the operator: rates are not that exact";
  const RunFigures figures = Paced(12000);
  EXPECT_NEAR(*figures.start_seconds, 2, 1e-9);
  EXPECT_NEAR(figures.duration_seconds, 60, 1e-9);
  EXPECT_NEAR(figures.samples_per_second, 200, 1e-9);
  EXPECT_EQ(figures.workers_min, 2);
  EXPECT_EQ(figures.workers_max, 2);
}

// Two workers that train a second and wait six for their average. The agent's rate, taken over two
// seconds, is mostly that of a piece of the wait; the worker's own one is of bursts and waits.
TEST(RunRecordTest, WaitingForAveragesDoesNotMakeGoodputMoreThanOne) {
  RunRecord record(1000, 2);
  for (double t = 1002; t <= 1107; t += 0.5) {
    const double rounds = std::floor((t - 1002) / 7), into = (t - 1002) - 7 * rounds;
    const double trained = rounds + std::min(into, 1.0);
    for (const char* name : {"job-0-1", "job-1-1"}) {
      record.Created(1000, name, name[4] - '0', 1);
      AgentSummary summary = Summary(1002, into < 2 ? 50 : 1, t);
      summary.samples = static_cast<uint64_t>(100 * trained);
      summary.stall_seconds = 6 * rounds;  // counted when the wait is over
      summary.job_samples = 2 * summary.samples;
      record.Saw(t, name, summary, Told::kNothing);
    }
    record.Tick(t);
  }
  record.Finish(1107);
  EXPECT_LE(*record.Figures().goodput, 1.0);  // all that was trained was merged
  EXPECT_GE(*record.Figures().goodput, 0.95);
}

// Sums of what each agent says; one that began anew counts from zero again.
TEST(RunRecordTest, SecondsOfAveragingsAreSummedOverWorkersAndTheirRestarts) {
  RunRecord record(0, 2);
  const auto saw = [&](double at, const std::string& worker,
                       const controller::SummaryAveragings& averagings) {
    AgentSummary summary = Summary(1, 100, at);
    summary.averagings = averagings;
    record.Saw(at, worker, summary, Told::kNothing);
  };
  saw(2, "job-0-1", {1, 2.0, {1, 0, .5, .5, .25, 0}});
  saw(3, "job-0-1", {3, 5.0, {2, 1, .75, .5, .5, .5}});
  saw(3, "job-1-1", {2, 4.0, {0, 4, 0, 0, 0, 0}});
  saw(4, "job-0-1", {1, 1.5, {.5, .5, .5, 0, 0, 0}});  // its agent began anew
  saw(5, "job-0-1", {1, 1.5, {.5, .5, .5, 0, 0, 0}});  // nothing new
  const controller::SummaryAveragings sums = record.Figures().averagings;
  EXPECT_EQ(sums.number, 6u);
  EXPECT_DOUBLE_EQ(sums.whole, 10.5);
  EXPECT_EQ(sums.parts, (std::array<double, 6>{2.5, 5.5, 1.25, .5, .5, .5}));
}

TEST(RunRecordTest, GoodputOfARunTooShortToTellAPaceIsUnknown) {
  RunRecord record(0, 1);
  record.Created(0, "job-0-1", 0, 1);
  for (double t = 1; t <= 4; t += 0.5) record.Saw(t, "job-0-1", Summary(1, 100, t), Told::kNothing);
  record.Tick(4);
  EXPECT_FALSE(record.Figures().goodput.has_value());
}

TEST(RunRecordTest, WorkersThatStopAtTheTargetAreNotMissing) {
  RunRecord record(0, 2);
  for (const char* name : {"job-0-1", "job-1-1"}) {
    record.Created(0, name, name[4] - '0', 1);
    record.Saw(2, name, Summary(1, 100, 2), Told::kNothing);
  }
  record.Tick(2);
  AgentSummary stopped = Summary(1, 100, 3);
  stopped.state = "Stopped";
  record.Saw(3, "job-1-1", stopped, Told::kNothing);
  record.Tick(3);
  EXPECT_EQ(record.Figures().workers_min, 1);  // without a word of the target it is
  RunRecord other(0, 1);
  other.Created(0, "job-0-1", 0, 1);
  other.Saw(2, "job-0-1", Summary(1, 100, 2), Told::kNothing);
  other.Tick(2);
  stopped.target_met = true;
  other.Saw(3, "job-0-1", stopped, Told::kNothing);
  other.Tick(3);
  EXPECT_EQ(other.Figures().workers_min, 1);
}

TEST(RunRecordTest, MeasuresFromTheLossOfAWorkerToItsReplacementsFirstStep) {
  RunRecord record(0, 1);
  record.Created(0, "job-0-1", 0, 1);
  record.Saw(1, "job-0-1", Summary(1, 100, 1), Told::kNothing);
  record.Tick(1);
  record.Taken(10, "job-0-1");
  record.Created(10.1, "job-0-2", 0, 2);
  record.Tick(10.5);
  record.Saw(13, "job-0-2", Summary(12.5, 100, 13), Told::kNothing);
  record.Tick(13);
  const RunFigures figures = record.Figures();
  EXPECT_EQ(figures.preemptions, 1u);
  EXPECT_NEAR(*figures.replacement_p50, 2.5, 1e-9);
  EXPECT_EQ(figures.workers_min, 0);
  EXPECT_EQ(figures.workers_max, 1);
}

TEST(RunRecordTest, ANoticedWorkerIsOnePreemptionAndItsFailedRoundsAreNobodysLoss) {
  RunRecord record(0, 2);
  record.Created(0, "job-0-1", 0, 1);
  record.Created(0, "job-1-1", 1, 1);
  AgentSummary a = Summary(1, 100, 2), b = a;
  a.rounds.completed = b.rounds.completed = 10;
  record.Saw(2, "job-0-1", a, Told::kNothing);
  record.Saw(2, "job-1-1", b, Told::kNothing);
  record.Noticed(3, "job-0-1");
  a.rounds.orphaned = 2;
  record.Saw(4, "job-0-1", a, Told::kToLeave);  // its last rounds end without it
  b.rounds = {14, 13, 1, 0, 1, 0, 0, 0};
  record.Saw(4, "job-1-1", b, Told::kNothing);
  record.Taken(5, "job-0-1");
  b.rounds.aborted = 1;  // long after the loss
  record.Saw(40, "job-1-1", b, Told::kNothing);
  const RunFigures figures = record.Figures();
  EXPECT_EQ(figures.preemptions, 1u);
  EXPECT_EQ(figures.rounds_completed, 24u);
  EXPECT_EQ(figures.rounds_repaired, 1u);
  EXPECT_EQ(figures.rounds_failed, 2u) << "one kept by the survivor, one aborted later";
  EXPECT_EQ(figures.rounds_failed_by_peer_loss, 1u);
}

TEST(RunRecordTest, CountersOfARestartedAgentGoOnFromZero) {
  RunRecord record(0, 1);
  record.Created(0, "job-0-1", 0, 1);
  AgentSummary summary = Summary(1, 100, 2);
  summary.rounds.completed = 10;
  record.Saw(2, "job-0-1", summary, Told::kNothing);
  summary.rounds.completed = 3;
  record.Saw(3, "job-0-1", summary, Told::kNothing);
  EXPECT_EQ(record.Figures().rounds_completed, 13u);
}

TEST(RunRecordTest, StallIsAShareOfTheTimeWorkersTrained) {
  RunRecord record(0, 1);
  record.Created(0, "job-0-1", 0, 1);
  AgentSummary summary = Summary(10, 100, 110);
  summary.stall_seconds = 2;
  record.Saw(110, "job-0-1", summary, Told::kNothing);
  EXPECT_NEAR(*record.Figures().averaging_stall_ratio, 0.02, 1e-9);
}

TEST(RunRecordTest, PointsOfALongRunAreThinned) {
  RunRecord record(0, 1);
  for (int i = 0; i < 50000; ++i) record.Tick(i * 0.5);
  EXPECT_LE(record.points().size(), 2000u);
  EXPECT_GE(record.points().size(), 900u);
  EXPECT_NEAR(record.points().back().at, 25000, 40);
}

TEST(PercentileTest, IsTheNearestRank) {
  EXPECT_FALSE(Percentile({}, .5).has_value());
  EXPECT_EQ(Percentile({3}, .95), 3);
  EXPECT_EQ(Percentile({4, 1, 3, 2}, .5), 2);
  EXPECT_EQ(Percentile({4, 1, 3, 2}, .95), 4);
}

TEST(RunRecordTest, TheTimeInWhichWorkersTrainApartIsCounted) {
  RunRecord record(1, 2);
  record.SawLineages(10, 2);  // of the time before nothing is known
  EXPECT_EQ(record.Figures().apart_seconds, 0);
  record.SawLineages(10.5, 1);
  record.SawLineages(11, 2);
  record.SawLineages(12, 3);
  record.SawLineages(13, 1);
  record.SawLineages(14, 0);
  EXPECT_EQ(record.Figures().apart_seconds, 1.5);
}

}  // namespace
}  // namespace crowdsurf::cli
