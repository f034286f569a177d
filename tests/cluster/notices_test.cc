// Three hundred jobs are deleted at once while a hundred nodes are marked: each worker there is
// told by the leader, which stays the leader. Prints how long notices took.
#include <algorithm>

#include "operator/core/observe/watch_parser.h"
#include "operator/core/pods/pod_builder.h"
#include "operator/edge/kube/lease.h"
#include "operator/edge/reconcile/parallel_requests.h"
#include "tests/cluster/operator_fixture.h"

namespace crowdsurf::controller {
namespace {

using std::chrono::steady_clock;

// As the program: a client each for reconciling, notices, questions and the Lease.
class LeadingOperator {
 public:
  LeadingOperator(const KubeEndpoint& endpoint, const std::string& space)
      : all_(endpoint, {}),
        notices_(endpoint, {.connections = kMaxParallelRequests}),
        beside_(endpoint, {.connections = 4}),
        renewals_(endpoint, {.connections = 1, .timeout = Seconds(5)}),
        lease_watch_(endpoint, {.connections = 1}),
        lease_(renewals_, lease_watch_, {.space = space, .identity = "one"}, Logger(), metrics_),
        cluster_(
            all_,
            {.pods = {"crowdsurf/worker:test", "https://signer:9443", SpotPlacement::kPreferred},
             .space = space,
             .notices = &notices_,
             .beside = &beside_,
             .trust = [](const TrainingJob&) { return std::string("CA"); },
             .clock = WallNow},
            Rng(1), Logger(), metrics_),
        controller_(cluster_, Options(), metrics_, Logger()) {
    cluster_.Start();
    lease_.Start();
    thread_ = std::thread([this] { controller_.Run(); });
  }
  ~LeadingOperator() {
    controller_.Stop();
    thread_.join();
    lease_.Stop();
    all_.Stop();
    beside_.Stop();
    cluster_.Stop();
  }
  bool leads() const { return lease_.leading(); }
  int turns_without_lead() const { return turns_without_lead_; }

 private:
  ControllerOptions Options() {
    ControllerOptions options;
    options.decide.agent_image = "crowdsurf/worker:test";
    options.decide.notice_first = Milliseconds(250);  // as the program has it
    options.ask_agents = false;
    options.leading = [this] {
      const bool leads = lease_.leading();
      led_ = led_ || leads;
      if (led_ && !leads) ++turns_without_lead_;
      return leads;
    };
    return options;
  }
  MetricRegistry metrics_;
  std::atomic<bool> led_{false};
  std::atomic<int> turns_without_lead_{0};
  KubeClient all_, notices_, beside_, renewals_, lease_watch_;
  Lease lease_;
  KubeCluster cluster_;
  Controller controller_;
  std::thread thread_;
};

class NoticesTest : public OperatorTest {
 protected:
  static constexpr int kGone = 300, kMarked = 100;
  void TearDown() override {
    StopListening();
    leading_.reset();
    OperatorTest::TearDown();
  }
  static std::string Name(const char* kind, int i) { return kind + std::to_string(i); }
  std::string Node(int i) { return space_ + "-" + std::to_string(i); }
  // `ask` of 0 .. count - 1, side by side.
  void Each(int count, const std::function<Status(int)>& ask) {
    for (const Status& status : ParallelRequests(
             static_cast<size_t>(count), [&](size_t i) { return ask(static_cast<int>(i)); })) {
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  // A hundred at a time: a machine that is busy makes them, and their pods, within a test's
  // patience.
  void MakeJobs(const char* kind, int count) {
    for (int from = 0; from < count; from += 100) {
      const size_t before = Pods().size();
      Each(100, [&](int i) {
        Json job = Job(1);
        job["metadata"]["name"] = Name(kind, from + i);
        return client_->Create(jobs_, job).status();
      });
      ASSERT_TRUE(Eventually("a pod of each job", [&] { return Pods().size() == before + 100; }));
    }
  }
  // When the API server told of each worker's notice.
  void Listen() {
    listener_ = std::thread([this] {
      WatchParser parser;
      (void)watch_.Watch(core_ + "pods?watch=1&resourceVersion=0", [&](std::string_view bytes) {
        std::vector<WatchEvent> events;
        parser.Feed(bytes, events);
        const std::lock_guard lock(mutex_);
        for (const WatchEvent& event : events) {
          const Json& metadata = event.object["metadata"];
          const Json annotations = metadata.value("annotations", Json::object());
          if (annotations.contains(kNoticeAnnotation))
            told_.try_emplace(metadata["name"], steady_clock::now());
        }
        return true;
      });
    });
  }
  void StopListening() {
    watch_.Stop();
    if (listener_.joinable()) listener_.join();
  }
  size_t Told() {
    const std::lock_guard lock(mutex_);
    return told_.size();
  }
  void DeleteAndMark() {
    std::thread deletes([this] {
      Each(kGone, [&](int i) {
        return client_->Delete(jobs_ + "/" + Name("gone-", i),
                               {{"propagationPolicy", "Background"}});
      });
    });
    KubeClient cloud(endpoint_, {});
    const auto marked = ParallelRequests(size_t{kMarked}, [&](size_t i) {
      const auto asked = steady_clock::now();
      const Status status =
          cloud
              .Patch("/api/v1/nodes/" + Node(static_cast<int>(i)), PatchType::kMerge,
                     {{"spec",
                       {{"taints",
                         {{{"key", "aws-node-termination-handler/spot-itn"},
                           {"value", "now"},
                           {"effect", "NoSchedule"}}}}}}})
              .status();
      marked_at_[i] = steady_clock::now();
      took_[i] = std::chrono::duration<double>(marked_at_[i] - asked).count();
      return status;
    });
    for (const Status& status : marked) EXPECT_TRUE(status.ok()) << status;
    deletes.join();
  }

  std::unique_ptr<LeadingOperator> leading_;
  KubeClient watch_{*LoadDefaultKubeEndpoint(), {}};
  std::thread listener_;
  std::mutex mutex_;
  std::map<std::string, steady_clock::time_point> told_;
  steady_clock::time_point marked_at_[kMarked];  // as the API server answered
  double took_[kMarked];                         // seconds of that request
};

TEST_F(NoticesTest, LeaveWhileThreeHundredJobsAreDeletedAndTheLeaderStays) {
  for (int i = 0; i < kMarked; ++i) AddNode(Node(i));
  leading_ = std::make_unique<LeadingOperator>(endpoint_, space_);
  ASSERT_NO_FATAL_FAILURE(MakeJobs("runs-", kMarked));
  ASSERT_NO_FATAL_FAILURE(MakeJobs("gone-", kGone));
  for (int i = 0; i < kMarked; ++i) {
    Bind(Name("runs-", i) + "-0-1", Node(i));
    Play(Name("runs-", i) + "-0-1", "Running", {});
  }
  Listen();
  DeleteAndMark();
  EXPECT_TRUE(Eventually("every worker told", [&] { return Told() == kMarked; }));
  EXPECT_TRUE(Eventually("its replacement", [&] {
    const auto pods = Pods();
    return pods.contains("runs-0-0-2") && pods.contains("runs-99-0-2");
  }));
  StopListening();
  std::vector<double> seconds;
  for (int i = 0; i < kMarked; ++i) {
    const auto told = told_.find(Name("runs-", i) + "-0-1");
    if (told == told_.end()) continue;
    seconds.push_back(std::chrono::duration<double>(told->second - marked_at_[i]).count());
  }
  ASSERT_EQ(seconds.size(), size_t{kMarked});
  std::sort(seconds.begin(), seconds.end());
  std::sort(std::begin(took_), std::end(took_));
  std::printf(
      "%d jobs deleted, %d nodes marked: notices p50 %.3f s, p99 %.3f s after the mark's answer, "
      "which took p50 %.3f s, p99 %.3f s; turns without the lead %d\n",
      kGone, kMarked, seconds[kMarked / 2], seconds[kMarked - 2], took_[kMarked / 2],
      took_[kMarked - 2], leading_->turns_without_lead());
  EXPECT_EQ(leading_->turns_without_lead(), 0);
  EXPECT_TRUE(leading_->leads());
}

}  // namespace
}  // namespace crowdsurf::controller
