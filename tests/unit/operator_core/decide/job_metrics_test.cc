#include "operator/core/decide/job_metrics.h"

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
    const Plan plan = world_.Reconcile();
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
