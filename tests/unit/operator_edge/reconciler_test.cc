#include "operator/edge/reconciler.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "operator/core/validate.h"

namespace crowdsurf::controller {
namespace {

// A platform that remembers in which batches it was asked, and refuses the pods of some indices.
class Platform : public Cluster {
 public:
  explicit Platform(int replicas) {
    snapshot_.job.name = "job";
    snapshot_.job.uid = "uid";
    snapshot_.job.spec = SpecFromJson(WithDefaults({{"replicas", replicas},
                                                    {"target", {{"samples", 1000}}},
                                                    {"template", nlohmann::json::object()}}));
  }
  StatusOr<JobSnapshot> Observe(const std::string&) override {
    if (gone) return absl::NotFoundError("gone");
    return snapshot_;
  }
  Status Create(const TrainingJob&, const CreatePod& create) override {
    if (refused.contains(create.index)) return absl::InvalidArgumentError("no such image");
    PodFacts pod;
    pod.name = create.name;
    pod.uid = create.name;
    pod.index = create.index;
    pod.incarnation = create.incarnation;
    snapshot_.pods.push_back(pod);
    return absl::OkStatus();
  }
  std::vector<Status> CreateAll(const TrainingJob& job,
                                std::span<const CreatePod> creates) override {
    batches.push_back(creates.size());
    return Cluster::CreateAll(job, creates);
  }
  Status Delete(const DeletePod&) override { return absl::OkStatus(); }
  Status Annotate(const AnnotatePod&) override { return annotating; }
  Status WriteStatus(const TrainingJob&, const TrainingJobStatus& status) override {
    snapshot_.status = status;
    return absl::OkStatus();
  }
  void Record(const TrainingJob&, const Event&) override {}

  // All pods run on a node that is about to go.
  void Mark() {
    for (PodFacts& pod : snapshot_.pods) {
      pod.node = "node";
      pod.phase = PodPhase::kRunning;
    }
    snapshot_.nodes["node"].mark = controller::Mark{"Taint", std::nullopt, false};
  }

  Status annotating;
  std::set<int> refused;
  bool gone = false;
  std::vector<size_t> batches;
  const JobSnapshot& snapshot() const { return snapshot_; }

 private:
  JobSnapshot snapshot_;
};

const WallTime kNow = WallTime::FromNanoseconds(1'700'000'000'000'000'000);

double Reconciles(const MetricRegistry& metrics, const std::string& result) {
  return metrics.Value("controller_runtime_reconcile_total",
                       {{"controller", "trainingjob"}, {"result", result}});
}

TEST(ReconcilerTest, CreatesStartSlowlyAndDouble) {
  Platform platform(20);
  MetricRegistry metrics;
  Reconciler reconciler(platform, {}, metrics, Logger());
  ASSERT_TRUE(reconciler.Reconcile("job", kNow).ok());
  EXPECT_EQ(platform.batches, (std::vector<size_t>{1, 2, 4, 8, 5}));
  EXPECT_EQ(platform.snapshot().pods.size(), 20u);
  EXPECT_EQ(metrics.Value("crowdsurf_operator_pod_calls_total", {{"call", "create"}}), 20);
}

TEST(ReconcilerTest, ATemplateThatIsRefusedCostsOneCall) {  // pod-lifecycle 7.3
  Platform platform(20);
  for (int index = 0; index < 20; ++index) platform.refused.insert(index);
  MetricRegistry metrics;
  Reconciler reconciler(platform, {}, metrics, Logger());
  ASSERT_TRUE(reconciler.Reconcile("job", kNow).ok());
  EXPECT_EQ(platform.batches, (std::vector<size_t>{1}));
  // It is not tried again before its back-off, and the status says why.
  ASSERT_TRUE(reconciler.Reconcile("job", kNow + Milliseconds(10)).ok());
  EXPECT_EQ(platform.batches.size(), 1u);
  EXPECT_NE(StatusToJson(platform.snapshot().status).dump().find("no such image"),
            std::string::npos);
}

TEST(ReconcilerTest, ARefusalEndsTheTurnAfterItsBatchAndIsNotForgottenByItsNeighbours) {
  Platform platform(20);
  platform.refused = {1};  // of the second batch, {1, 2}: the other one succeeds
  MetricRegistry metrics;
  Reconciler reconciler(platform, {}, metrics, Logger());
  ASSERT_TRUE(reconciler.Reconcile("job", kNow).ok());
  EXPECT_EQ(platform.batches, (std::vector<size_t>{1, 2}));
  EXPECT_EQ(platform.snapshot().pods.size(), 2u);
  EXPECT_EQ(metrics.Value("crowdsurf_operator_creates_refused_total"), 1);
  ASSERT_TRUE(reconciler.Reconcile("job", kNow + Milliseconds(10)).ok());
  EXPECT_EQ(platform.batches.size(), 2u) << "the refusal was forgotten";
  EXPECT_EQ(platform.snapshot().status.disruptions, 0u) << "what was never made has not vanished";
  platform.refused.clear();
  ASSERT_TRUE(reconciler.Reconcile("job", kNow + Seconds(120)).ok());
  EXPECT_EQ(platform.snapshot().pods.size(), 20u);
}

TEST(ReconcilerTest, WhoseNoticeIsRefusedIsReplacedInTheNextTurn) {
  Platform platform(1);
  MetricRegistry metrics;
  DecideOptions options;
  options.notice_first = Milliseconds(250);
  Reconciler reconciler(platform, options, metrics, Logger());
  ASSERT_TRUE(reconciler.Reconcile("job", kNow).ok());
  platform.Mark();
  platform.annotating = absl::PermissionDeniedError("no patch");
  ASSERT_TRUE(reconciler.Reconcile("job", kNow + Seconds(1)).ok());
  EXPECT_EQ(platform.batches.size(), 1u) << "its kubelet might be looking";
  ASSERT_TRUE(reconciler.Reconcile("job", kNow + Seconds(1.01)).ok());
  EXPECT_EQ(platform.batches.size(), 2u) << "nobody was told";
}

TEST(ReconcilerTest, AJobThatIsGoneIsNoErrorAndTakesItsSeriesAlong) {
  Platform platform(2);
  MetricRegistry metrics;
  Reconciler reconciler(platform, {}, metrics, Logger());
  ASSERT_TRUE(reconciler.Reconcile("job", kNow).ok());
  const MetricLabels job = {{"namespace", "local"}, {"training_job", "job"}};
  EXPECT_EQ(metrics.Value("crowdsurf_job_workers_desired", job), 2);
  platform.gone = true;
  EXPECT_TRUE(absl::IsNotFound(reconciler.Reconcile("job", kNow).status()));
  EXPECT_EQ(metrics.Value("crowdsurf_job_workers_desired", job), 0);
  EXPECT_EQ(Reconciles(metrics, "error"), 0);
  EXPECT_EQ(Reconciles(metrics, "success") + Reconciles(metrics, "requeue_after"), 2);
}

}  // namespace
}  // namespace crowdsurf::controller
