// How a plan is carried out: its order, its batches, what is refused, and answers that are lost.
#include "operator/edge/reconcile/reconciler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "operator/core/job/validate.h"
#include "operator/edge/reconcile/parallel_requests.h"

namespace crowdsurf::controller {
namespace {

// A platform that remembers what it was asked in which order, refuses the pods of some indices, and
// loses the answers about others. A create takes it a while by the test's clock.
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
    if (throws) throw std::runtime_error("byte \xFF of the manifest");
    return snapshot_;
  }
  Status Create(const TrainingJob&, const CreatePod& create) override {
    steady = steady + Milliseconds(10);
    if (refused.contains(create.index)) return absl::InvalidArgumentError("no such image");
    if (create.name == taken) return taking;
    PodFacts pod;
    pod.name = create.name;
    pod.uid = create.name;
    pod.index = create.index;
    pod.incarnation = create.incarnation;
    const auto known = std::find_if(snapshot_.pods.begin(), snapshot_.pods.end(),
                                    [&](const PodFacts& other) { return other.name == pod.name; });
    if (known == snapshot_.pods.end()) snapshot_.pods.push_back(pod);
    if (unanswered.contains(create.index)) return absl::UnavailableError("the connection ended");
    return absl::OkStatus();
  }
  std::vector<Status> CreateAll(const TrainingJob& job, std::span<const CreatePod> creates,
                                const Enough& enough) override {
    batches.push_back(creates.size());
    return Cluster::CreateAll(job, creates, enough);
  }
  Status Delete(const DeletePod& pod) override {
    done.push_back("delete " + pod.name);
    return deleting;
  }
  Status Annotate(const AnnotatePod&) override { return annotating; }
  Status WriteStatus(const TrainingJob&, const TrainingJobStatus& status) override {
    done.push_back("status");
    if (writing.ok()) snapshot_.status = status;
    return writing;
  }
  void Record(const TrainingJob&, const Event&) override { done.push_back("event"); }
  Status ShowError(const std::string&, const std::string& what) override {
    shown = what;
    return absl::OkStatus();
  }

  // All pods run on a node that is about to go.
  void Mark() {
    for (PodFacts& pod : snapshot_.pods) {
      pod.node = "node";
      pod.phase = PodPhase::kRunning;
    }
    snapshot_.nodes["node"].mark = controller::Mark{"Taint", std::nullopt, false};
  }
  void Unmark() { snapshot_.nodes["node"].mark.reset(); }

  PodFacts& Worker(size_t at) { return snapshot_.pods.at(at); }

  Status annotating, writing, deleting;
  std::string taken;  // a name that somebody else has
  Status taking;
  bool throws = false;
  std::set<int> unanswered;
  std::vector<std::string> done;
  std::string shown;  // the last error
  Time steady = Time::FromNanoseconds(1);
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

void EndTrainer(PodFacts& pod, int code) {
  pod.phase = PodPhase::kRunning;
  pod.ever_ready = true;
  pod.trainer = ContainerEnd{code, "Error", ""};
}

TEST(ReconcilerTest, ANoticeThatGoesOutAtLastIsWaitedFor) {
  Platform platform(1);
  MetricRegistry metrics;
  DecideOptions options;
  options.notice_first = Milliseconds(250);
  Reconciler reconciler(platform, options, metrics, Logger());
  ASSERT_TRUE(reconciler.Reconcile("job", kNow).ok());
  platform.Mark();
  platform.annotating = absl::PermissionDeniedError("no patch");
  ASSERT_TRUE(reconciler.Reconcile("job", kNow + Seconds(1)).ok());
  platform.annotating = absl::OkStatus();
  platform.Unmark();
  ASSERT_TRUE(reconciler.Reconcile("job", kNow + Seconds(1.01)).ok());
  platform.Mark();
  ASSERT_TRUE(reconciler.Reconcile("job", kNow + Seconds(1.02)).ok());
  EXPECT_EQ(platform.batches.size(), 1u) << "this notice went out, so its kubelet looks first";
}

// pod-lifecycle 3.2: the name is used up, and its worker gets the next one.
TEST(ReconcilerTest, ANameThatSomebodyElseHasIsSteppedOver) {
  Platform platform(1);
  platform.taken = "job-0-1";
  platform.taking = absl::AlreadyExistsError("a pod");
  MetricRegistry metrics;
  Reconciler reconciler(platform, {}, metrics, Logger());
  ASSERT_TRUE(reconciler.Reconcile("job", kNow).ok());
  EXPECT_TRUE(platform.snapshot().pods.empty());
  ASSERT_TRUE(reconciler.Reconcile("job", kNow + Seconds(120)).ok());
  ASSERT_EQ(platform.snapshot().pods.size(), 1u);
  EXPECT_EQ(platform.snapshot().pods[0].name, "job-0-2");
  EXPECT_EQ(platform.snapshot().status.disruptions, 0u) << "nobody has vanished";
}

TEST(ReconcilerTest, ANameWhoseCreateMetAConflictIsStillFree) {  // of a quota, not of the pod
  Platform platform(1);
  platform.taken = "job-0-1";
  platform.taking = absl::AbortedError("conflict");
  MetricRegistry metrics;
  Reconciler reconciler(platform, {}, metrics, Logger());
  ASSERT_TRUE(reconciler.Reconcile("job", kNow).ok());
  platform.taken.clear();
  ASSERT_TRUE(reconciler.Reconcile("job", kNow + Seconds(120)).ok());
  ASSERT_EQ(platform.snapshot().pods.size(), 1u);
  EXPECT_EQ(platform.snapshot().pods[0].name, "job-0-1");
  EXPECT_EQ(platform.snapshot().status.disruptions, 0u);
}

// Its only create is refused in five turns, and in those to come. Returns when the next may be.
WallTime RefuseFiveTimes(Platform& platform, Reconciler& reconciler) {
  platform.refused = {0};
  WallTime now = kNow;
  for (int turn = 0; turn < 5; ++turn) {
    EXPECT_TRUE(reconciler.Reconcile("job", now).ok());
    now = now + Seconds(120);  // longer than any back-off
  }
  return now;
}

TEST(ReconcilerTest, ACreateThatSucceedsEndsTheRowOfRefusals) {
  Platform platform(1);
  MetricRegistry metrics;
  Reconciler reconciler(platform, {}, metrics, Logger());
  WallTime now = RefuseFiveTimes(platform, reconciler);
  platform.refused.clear();
  ASSERT_TRUE(reconciler.Reconcile("job", now).ok());
  ASSERT_EQ(platform.snapshot().pods.size(), 1u);
  EndTrainer(platform.Worker(0), 1);
  ASSERT_TRUE(reconciler.Reconcile("job", now).ok());
  platform.refused = {0};
  now = now + Seconds(700);
  ASSERT_TRUE(reconciler.Reconcile("job", now).ok());
  const auto plan = reconciler.Reconcile("job", now);
  ASSERT_TRUE(plan.ok());
  EXPECT_LE(plan->requeue_at, now + Seconds(1)) << "the first refusal of a new row";
}

TEST(ReconcilerTest, AJobThatIsMadeAgainUnderItsNameBeginsANewRowOfRefusals) {
  Platform platform(1);
  MetricRegistry metrics;
  Reconciler reconciler(platform, {}, metrics, Logger());
  const WallTime now = RefuseFiveTimes(platform, reconciler);
  platform.gone = true;
  EXPECT_TRUE(absl::IsNotFound(reconciler.Reconcile("job", now).status()));
  platform.gone = false;
  ASSERT_TRUE(reconciler.Reconcile("job", now).ok());
  const auto plan = reconciler.Reconcile("job", now);
  ASSERT_TRUE(plan.ok());
  EXPECT_LE(plan->requeue_at, now + Seconds(1));
}

TEST(ReconcilerTest, APodGoesOnlyWhenTheStatusSaysWhatItsEndWas) {
  Platform platform(1);
  MetricRegistry metrics;
  Reconciler reconciler(platform, {}, metrics, Logger());
  ASSERT_TRUE(reconciler.Reconcile("job", kNow).ok());
  EndTrainer(platform.Worker(0), 1);
  platform.done.clear();
  platform.writing = absl::AbortedError("conflict");
  EXPECT_TRUE(absl::IsAborted(reconciler.Reconcile("job", kNow + Seconds(1)).status()));
  EXPECT_EQ(platform.done, std::vector<std::string>{"status"}) << "neither a delete nor an event";
  // Another operator, which knows only what was written.
  Reconciler another(platform, {}, metrics, Logger());
  platform.writing = absl::OkStatus();
  platform.done.clear();
  ASSERT_TRUE(another.Reconcile("job", kNow + Seconds(2)).ok());
  EXPECT_EQ(platform.done, (std::vector<std::string>{"status", "delete job-0-1", "event"}));
  EXPECT_EQ(platform.snapshot().status.failures, 1u);
  EXPECT_EQ(platform.snapshot().status.counted_failures.size(), 1u);
  // Killed after the write and before the delete: counted once.
  Reconciler third(platform, {}, metrics, Logger());
  ASSERT_TRUE(third.Reconcile("job", kNow + Seconds(3)).ok());
  EXPECT_EQ(platform.done.back(), "delete job-0-1");
  EXPECT_EQ(platform.snapshot().status.failures, 1u);
  EXPECT_EQ(platform.snapshot().status.disruptions, 0u);
}

TEST(ReconcilerTest, ADeleteThatFailsIsTriedAgain) {
  Platform platform(1);
  MetricRegistry metrics;
  Reconciler reconciler(platform, {}, metrics, Logger());
  ASSERT_TRUE(reconciler.Reconcile("job", kNow).ok());
  EndTrainer(platform.Worker(0), 1);
  platform.deleting = absl::UnavailableError("away");
  const auto plan = reconciler.Reconcile("job", kNow + Seconds(1));
  ASSERT_TRUE(plan.ok());
  EXPECT_LE(plan->requeue_at, kNow + Seconds(2));
}

TEST(ReconcilerTest, ACreateWithoutAnAnswerKeepsItsNameAndItsEndIsCounted) {
  Platform platform(1);
  platform.unanswered = {0};
  MetricRegistry metrics;
  Reconciler reconciler(platform, {}, metrics, Logger());
  ASSERT_TRUE(reconciler.Reconcile("job", kNow).ok());
  EXPECT_TRUE(platform.snapshot().status.counted.empty()) << "nobody knows whether it was made";
  EndTrainer(platform.Worker(0), 1);
  ASSERT_TRUE(reconciler.Reconcile("job", kNow + Seconds(120)).ok());
  EXPECT_EQ(platform.snapshot().status.failures, 1u);
  EXPECT_EQ(platform.snapshot().status.disruptions, 0u);
}

TEST(ReconcilerTest, ATurnOfABigJobEndsWithItsSliceAndTheNextGoesOn) {
  Platform platform(300);
  MetricRegistry metrics;
  Reconciler reconciler(platform, {}, metrics, Logger(), [&] { return platform.steady; });
  WallTime now = kNow;
  for (int turn = 1; platform.snapshot().pods.size() < 300; ++turn) {
    ASSERT_LE(turn, 12);
    const Time begun = platform.steady;
    const auto plan = reconciler.Reconcile("job", now);
    ASSERT_TRUE(plan.ok());
    EXPECT_LE(platform.steady - begun, Milliseconds(310)) << "others' jobs wait";
    const bool all = platform.snapshot().pods.size() == 300;
    EXPECT_TRUE(all || plan->requeue_at == now);
    now = now + Milliseconds(300);
  }
  // What was not begun is neither made nor used up: every worker has its first name.
  EXPECT_EQ(platform.snapshot().status.incarnations.size(), 300u);
  for (const PodFacts& pod : platform.snapshot().pods) EXPECT_EQ(pod.incarnation, 1);
  ASSERT_TRUE(reconciler.Reconcile("job", now).ok());
  EXPECT_EQ(platform.snapshot().status.disruptions, 0u);
}

TEST(ReconcilerTest, AnExceptionEndsItsTurnAloneAndIsShown) {
  Platform platform(1);
  platform.throws = true;
  MetricRegistry metrics;
  Reconciler reconciler(platform, {}, metrics, Logger());
  EXPECT_TRUE(absl::IsInternal(reconciler.Reconcile("job", kNow).status()));
  EXPECT_EQ(platform.shown, "byte \xEF\xBF\xBD of the manifest");
  EXPECT_EQ(
      metrics.Value("controller_runtime_reconcile_panics_total", {{"controller", "trainingjob"}}),
      1);
  platform.throws = false;
  EXPECT_TRUE(reconciler.Reconcile("job", kNow).ok());
  EXPECT_EQ(platform.snapshot().pods.size(), 1u);
}

TEST(ParallelRequestsTest, EndsWhenItIsEnoughAndAnswersTheFirstOnes) {
  std::atomic<int> asked{0};
  const auto answers = ParallelRequests(
      1000, [&](size_t i) { return (++asked, static_cast<int>(i) + 1); },
      [&] { return asked >= 20; });
  EXPECT_EQ(answers.size(), static_cast<size_t>(asked));
  EXPECT_LE(answers.size(), 20 + kMaxParallelRequests);
  for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i], static_cast<int>(i) + 1);
  EXPECT_EQ(ParallelRequests(
                5, [](size_t i) { return i; }, [] { return true; })
                .empty(),
            false);
}

TEST(ParallelRequestsTest, AnExceptionComesToTheCaller) {
  EXPECT_THROW(ParallelRequests(50,
                                [](size_t i) {
                                  if (i == 7) throw std::runtime_error("seven");
                                  return i;
                                }),
               std::runtime_error);
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
