// How long a leader leads that cannot renew, and how long a follower believes a silent one. Against
// a server that keeps one Lease, with a clock of the test; tests/cluster has a real one.
#include "operator/edge/kube/lease.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <condition_variable>
#include <mutex>

#include "tests/support/eventually.h"
#include "tests/support/loopback_server.h"
#include "tests/unit/operator_edge/kube/plain_endpoint.h"

namespace crowdsurf::controller {
namespace {

constexpr char kPath[] = "/apis/coordination.k8s.io/v1/namespaces/team/leases/crowdsurf-operator";
constexpr std::chrono::seconds kPatience{60};  // a test fails by it, and never waits for it

class LeaseTermTest : public testing::Test {
 protected:
  LeaseTermTest() {
    server_.Get(kPath, [this](const httplib::Request&, httplib::Response& out) {
      const std::lock_guard lock(mutex_);
      out.set_content(stored_.dump(), "application/json");
    });
    server_.Put(kPath, [this](const httplib::Request& request, httplib::Response& out) {
      const std::lock_guard lock(mutex_);
      stored_ = nlohmann::json::parse(request.body);
      out.set_content(request.body, "application/json");
    });
    loopback_.emplace(server_);
    client_.emplace(PlainEndpoint(loopback_->port()), KubeClient::Options{});
    watch_client_.emplace(PlainEndpoint(loopback_->port()), KubeClient::Options{});
  }
  // Its times are those of the operator, but for the pause between two tries.
  void Start() {
    LeaseOptions options;
    options.retry = Milliseconds(1);
    Launch(options);
    AwaitTry();
  }
  void Launch(LeaseOptions options) {
    options.space = "team";
    options.identity = "us";
    options.clock = [this] { return now_.load(); };
    options.fit = [this] {
      const std::lock_guard lock(mutex_);
      ++tries_;
      tried_.notify_all();
      return fit_;
    };
    lease_.emplace(*client_, *watch_client_, options, Logger(), metrics_);
    lease_->Start();
  }
  void Pass(Duration time) { now_ = now_.load() + time; }
  // Until a try that began after this call has ended.
  void AwaitTry() {
    std::unique_lock lock(mutex_);
    const int enough = tries_ + 2;
    EXPECT_TRUE(tried_.wait_for(lock, kPatience, [&] { return tries_ >= enough; }));
  }
  std::string Holder() {
    const std::lock_guard lock(mutex_);
    return stored_["spec"].value("holderIdentity", "");
  }

  std::atomic<Time> now_{Time::FromNanoseconds(1'000'000'000'000)};
  std::mutex mutex_;
  std::condition_variable tried_;
  int tries_ = 0;
  bool fit_ = true;
  nlohmann::json stored_ = {{"metadata", {{"name", "crowdsurf-operator"}}},
                            {"spec", {{"leaseTransitions", 0}}}};
  MetricRegistry metrics_;
  httplib::Server server_;
  std::optional<LoopbackServer> loopback_;
  std::optional<KubeClient> client_, watch_client_;
  std::optional<Lease> lease_;
};

TEST_F(LeaseTermTest, ALeaderThatCannotRenewLeadsForTenSecondsAndNoLonger) {
  Start();
  ASSERT_TRUE(lease_->leading());
  {
    const std::lock_guard lock(mutex_);
    fit_ = false;
  }
  AwaitTry();  // a renewal that was under way is over
  Pass(Milliseconds(9999));
  EXPECT_TRUE(lease_->leading());
  Pass(Milliseconds(1));
  EXPECT_FALSE(lease_->leading());
}

TEST_F(LeaseTermTest, AFollowerBelievesASilentLeaderForFifteenSeconds) {
  stored_["spec"] = {{"holderIdentity", "them"}, {"renewTime", "2027-01-15T08:00:00.000000Z"}};
  Start();
  Pass(Milliseconds(14'999));
  AwaitTry();
  EXPECT_EQ(Holder(), "them");
  EXPECT_FALSE(lease_->leading());
  Pass(Milliseconds(1));
  AwaitTry();
  EXPECT_EQ(Holder(), "us");
  EXPECT_TRUE(lease_->leading());
}

// The server tells of the Lease as a watch does: as it is, and then each change.
class LeaseWatchTest : public LeaseTermTest {
 protected:
  LeaseWatchTest() {
    const auto watch = [this](const httplib::Request& request, httplib::Response& out) {
      EXPECT_EQ(request.get_param_value("fieldSelector"), "metadata.name=crowdsurf-operator");
      out.set_chunked_content_provider("application/json", [this](size_t, httplib::DataSink& sink) {
        std::unique_lock lock(mutex_);
        told_.wait(lock, [this] { return ending_ || !lines_.empty(); });
        if (ending_) return false;
        const std::string lines = std::exchange(lines_, "");
        return sink.write(lines.data(), lines.size());
      });
    };
    server_.Get(std::string(kPath).substr(0, std::string(kPath).rfind('/')), watch);
  }
  ~LeaseWatchTest() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    told_.notify_all();
    // The server's threads use what this class has: they end before it.
    lease_.reset();
    watch_client_.reset();
    client_.reset();  // the server waits some seconds for what an idle connection may bring
    loopback_.reset();
  }
  void Tell(const char* type) {
    const std::lock_guard lock(mutex_);
    TellLocked(type);
  }
  // At once, so that no try falls between the news and what is stored.
  void Delete() {
    const std::lock_guard lock(mutex_);
    TellLocked("DELETED");
    stored_["spec"] = {{"holderIdentity", ""}, {"renewTime", "2027-01-15T08:00:00.000000Z"}};
  }
  void TellLocked(const char* type) {
    nlohmann::json object = stored_;
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
    lines_ += nlohmann::json{{"type", type}, {"object", object}}.dump() + "\n";
    told_.notify_all();
  }
  void HeldBy(const char* holder) {
    const std::lock_guard lock(mutex_);
    stored_["spec"] = {{"holderIdentity", holder}, {"renewTime", "2027-01-15T08:00:00.000000Z"}};
  }
  // Without news nothing is tried again as long as the test runs.
  void Follow() {
    HeldBy("them");
    Tell("ADDED");
    LeaseOptions options;
    options.duration = Seconds(3600);
    options.retry = Milliseconds(1);
    Launch(options);
    EXPECT_TRUE(EventuallyHolds([this] { return lease_->watching(); }));
  }
  std::condition_variable told_;
  std::string lines_;
  int version_ = 0;
  bool ending_ = false;
};

// pod-lifecycle 8.6: polling would take up to 20 s.
TEST_F(LeaseWatchTest, AFollowerTakesALeaseThatIsGivenBackAsSoonAsItHearsOfIt) {
  Follow();
  Tell("BOOKMARK");  // says nothing about the holder
  Tell("MODIFIED");  // a renewal
  EXPECT_FALSE(lease_->leading());
  HeldBy("");
  Tell("MODIFIED");
  EXPECT_TRUE(EventuallyHolds([this] { return Holder() == "us"; }));
  EXPECT_TRUE(EventuallyHolds([this] { return lease_->leading(); }));
}

TEST_F(LeaseWatchTest, ALeaseThatIsDeletedIsNobodys) {
  Follow();
  Delete();
  EXPECT_TRUE(EventuallyHolds([this] { return Holder() == "us"; }));
}

TEST_F(LeaseWatchTest, AFollowerThatIsToldNothingAsksNothing) {
  Follow();
  std::unique_lock lock(mutex_);
  const int tries = tries_;
  lock.unlock();
  Tell("MODIFIED");
  Tell("MODIFIED");
  EXPECT_FALSE(lease_->leading());
  lock.lock();
  // One may have been under way. Time for a hundred more, where no watch told anything.
  EXPECT_FALSE(tried_.wait_for(lock, std::chrono::milliseconds(200), [&] {
    return tries_ > tries + 1;
  })) << "another's renewal is no reason to ask, and its time is not over";
}

}  // namespace
}  // namespace crowdsurf::controller
