#include "operator/core/decide/job_metrics.h"

#include <algorithm>

#include "tests/unit/operator_core/decide/world.h"

// pod-lifecycle 8.13: counters that outlive workers are the operator's.
namespace crowdsurf::controller {
namespace {

class JobMetricsTest : public testing::Test {
 protected:
  static MetricLabels Labels(
      std::initializer_list<std::pair<const std::string, std::string>> more = {}) {
    MetricLabels labels = {{"namespace", "local"}, {"training_job", "job"}};
    labels.insert(more.begin(), more.end());
    return labels;
  }
  // A turn of the world, shown as the reconciler shows it: the snapshot that the plan was made of.
  Plan Turn() {
    JobSnapshot seen = world_.snapshot;
    seen.nodes = world_.nodes;
    seen.pods.clear();
    for (const auto& [name, pod] : world_.pods) seen.pods.push_back(pod);
    Plan plan = world_.Reconcile();
    metrics_.Show("job", seen, plan, world_.now);
    return plan;
  }
  double Workers(const std::string& state) {
    return registry_.Value("crowdsurf_job_workers",
                           Labels({{"state", state}, {"capacity_type", "Spot"}}));
  }
  MetricFamily Family(const std::string& name) {
    for (const MetricFamily& family : registry_.Collect()) {
      if (family.name == name) return family;
    }
    return {};
  }

  MetricRegistry registry_;
  JobMetrics metrics_{registry_};
  World world_{3};
};

TEST_F(JobMetricsTest, WorkersConditionsAndProgressAreThoseOfTheJob) {
  Turn();
  Turn();
  EXPECT_EQ(Workers("pending"), 3);
  EXPECT_EQ(registry_.Value("crowdsurf_job_workers_desired", Labels()), 3);
  world_.StartAll();
  world_.snapshot.progress = {500, 42, 1.5, 7, false};
  Turn();
  EXPECT_EQ(Workers("pending"), 0);
  EXPECT_EQ(Workers("training"), 3);
  EXPECT_EQ(registry_.Value("crowdsurf_job_condition", Labels({{"condition", "Running"}})), 1);
  EXPECT_EQ(registry_.Value("crowdsurf_job_condition", Labels({{"condition", "Failed"}})), 0);
  EXPECT_EQ(registry_.Value("crowdsurf_job_samples", Labels()), 500);
  EXPECT_EQ(registry_.Value("crowdsurf_job_loss", Labels()), 1.5);
  EXPECT_EQ(registry_.Value("crowdsurf_job_progress_ratio", Labels()), 0.5);  // of 1000 samples
}

TEST_F(JobMetricsTest, ADisruptionIsCountedOnceAndItsReplacementIsTimed) {
  Turn();
  Turn();
  world_.StartAll();
  Turn();
  world_.TakeNode(world_.pods.begin()->first);
  Turn();
  world_.Wait(Seconds(3));
  world_.StartAll();
  Turn();
  Turn();
  EXPECT_EQ(registry_.Value("crowdsurf_job_disruptions_total", Labels({{"reason", "NodeGone"}})),
            1);
  EXPECT_EQ(registry_.Value("crowdsurf_job_failures_total", Labels()), 0);
  const MetricFamily replaced = Family("crowdsurf_operator_replacement_seconds");
  ASSERT_EQ(replaced.series.size(), 1u);
  EXPECT_EQ(replaced.series[0].cumulative.back(), 1u);
  EXPECT_NEAR(replaced.series[0].sum, 3, 0.5);
}

TEST_F(JobMetricsTest, ProgressIsTheTargetThatIsNearest) {
  world_.snapshot.job.spec.target = {{"samples", 1000}, {"seconds", 100}};
  Turn();
  world_.StartAll();
  Turn();
  world_.Wait(Seconds(30));
  world_.snapshot.progress.samples = 200;
  Turn();
  EXPECT_NEAR(registry_.Value("crowdsurf_job_progress_ratio", Labels()), 0.3, 0.01);
  world_.snapshot.progress.samples = 900;
  Turn();
  EXPECT_NEAR(registry_.Value("crowdsurf_job_progress_ratio", Labels()), 0.9, 0.01);
}

TEST_F(JobMetricsTest, EveryStateAndCapacityHasItsWorkers) {
  world_.snapshot.job.spec.capacity.on_demand_base = 1;
  Turn();
  Turn();
  const auto on_demand = [&](const std::string& state) {
    return registry_.Value("crowdsurf_job_workers",
                           Labels({{"state", state}, {"capacity_type", "OnDemand"}}));
  };
  EXPECT_EQ(on_demand("pending"), 1);
  EXPECT_EQ(Workers("pending"), 2);
  world_.StartAll();
  world_.pods.at("job-1-1").deleted = world_.now;
  world_.pods.at("job-2-1").phase = PodPhase::kFailed;
  Turn();
  EXPECT_EQ(on_demand("training"), 1);
  EXPECT_EQ(Workers("leaving"), 1);
  EXPECT_EQ(Workers("ended"), 1);
  EXPECT_EQ(Workers("training") + on_demand("leaving") + on_demand("ended"), 0);
  world_.snapshot.job.spec.suspend = true;
  Turn();
  EXPECT_EQ(registry_.Value("crowdsurf_job_workers_desired", Labels()), 0);
}

TEST_F(JobMetricsTest, AStartIsTimedOnceAndByItsOwnOperatorOnly) {
  const auto starts = [&] {
    return Family("crowdsurf_operator_job_startup_seconds").series.at(0).cumulative.back();
  };
  Turn();
  EXPECT_EQ(registry_.Value("crowdsurf_job_start_time_seconds", Labels()), 1.7e9);
  world_.Wait(Seconds(7));
  world_.StartAll();
  Turn();
  Turn();
  EXPECT_EQ(starts(), 1u);
  EXPECT_NEAR(Family("crowdsurf_operator_job_startup_seconds").series[0].sum, 7, 1e-6);
  metrics_.Clear();  // the lead is lost, and another operator takes the job as it is
  Turn();
  EXPECT_EQ(starts(), 1u);
}

// AWS gives two minutes, Azure and GCP 30 s; none is known to give more than four.
TEST_F(JobMetricsTest, NoticesAreMeasuredInBoundsThatTellTheCloudsApart) {
  Turn();
  world_.StartAll();
  world_.nodes["node-job-0-1"].mark = Mark{"Spot", world_.now + Seconds(30), false};
  world_.nodes["node-job-1-1"].mark = Mark{"Spot", world_.now + Seconds(120), false};
  Turn();
  const MetricValue lead = Family("crowdsurf_operator_notice_lead_seconds").series.at(0);
  EXPECT_EQ(lead.cumulative.back(), 2u);
  EXPECT_NEAR(lead.sum, 150, 1e-6);
  for (const double promise : {15.0, 30.0, 120.0}) {
    EXPECT_EQ(std::ranges::count(lead.upper_bounds, promise), 1) << promise;
  }
  EXPECT_GE(lead.upper_bounds.back(), 240);
  EXPECT_EQ(registry_.Value("crowdsurf_operator_forced_deletions_total"), 0);
  world_.Wait(Seconds(30));
  Turn();
  world_.Wait(Seconds(300));
  Turn();
  EXPECT_GE(registry_.Value("crowdsurf_operator_forced_deletions_total"), 1) << "it did not go";
}

TEST_F(JobMetricsTest, AJobThatIsMadeAgainUnderItsNameCountsFromZero) {
  JobSnapshot seen = world_.snapshot;
  Plan plan;
  plan.status.failures = 9;
  plan.status.disruptions_by_reason = {{std::string(reason::kNodeGone), 7}};
  seen.job.uid = "first";
  metrics_.Show("job", seen, plan, world_.now);
  plan.status.failures = 2;
  plan.status.disruptions_by_reason = {{std::string(reason::kNodeGone), 1}};
  seen.job.uid = "second";
  metrics_.Show("job", seen, plan, world_.now);
  EXPECT_EQ(registry_.Value("crowdsurf_job_failures_total", Labels()), 2);
  EXPECT_EQ(registry_.Value("crowdsurf_job_disruptions_total", Labels({{"reason", "NodeGone"}})),
            1);
}

TEST_F(JobMetricsTest, AJobsSeriesGoWithIt) {
  Turn();
  ASSERT_FALSE(Family("crowdsurf_job_condition").series.empty());
  metrics_.Forget("job");
  for (const MetricFamily& family : registry_.Collect()) {
    const bool of_jobs = family.name.starts_with("crowdsurf_job_");
    EXPECT_TRUE(!of_jobs || family.series.empty()) << family.name;
  }
  Turn();
  metrics_.Clear();
  EXPECT_TRUE(Family("crowdsurf_job_condition").series.empty());
}

}  // namespace
}  // namespace crowdsurf::controller
