// What a watch says that is no event is not lost: it is listed again, and counted. Nothing that a
// server says ends the thread, or makes it ask without pause.
#include "operator/edge/kube/reflector.h"

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/loopback_server.h"
#include "tests/unit/operator_edge/kube/plain_endpoint.h"

namespace crowdsurf::controller {
namespace {

constexpr std::chrono::seconds kPatience{60};  // a test fails by it, and never waits for it
constexpr char kMetric[] = "crowdsurf_operator_watch_restarts_total";
constexpr char kEvent[] =
    R"({"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "8"}}})";

class ReflectorTest : public testing::Test {
 protected:
  ReflectorTest() {
    server_.Get("/api/v1/pods", [this](const httplib::Request& request, httplib::Response& out) {
      if (!request.has_param("watch")) {
        return out.set_content(R"({"metadata": {"resourceVersion": "7"}, "items": []})", "json");
      }
      {
        const std::lock_guard lock(mutex_);
        versions_.push_back(request.get_param_value("resourceVersion"));
      }
      out.set_chunked_content_provider("json", [this](size_t, httplib::DataSink& sink) {
        sink.write(lines_.data(), lines_.size());
        sink.done();
        return true;
      });
    });
    loopback_.emplace(server_);
    client_.emplace(PlainEndpoint(loopback_->port()), KubeClient::Options{.metrics = &metrics_});
  }
  // Runs a reflector whose watches say kEvent and `line`, until two of them have given it.
  void Run(
      const char* line, const std::function<void()>& on_event = [] {}) {
    lines_ = absl::StrCat(kEvent, "\n", line);
    std::condition_variable changed;
    const auto count = [&](int& what) {
      const std::lock_guard lock(mutex_);
      ++what;
      changed.notify_all();
      return true;
    };
    Reflector::Receiver receiver;
    receiver.path = "/api/v1/pods";
    receiver.on_begin = [] {};
    receiver.on_item = [](const nlohmann::json&) {};
    receiver.on_list = [&](const std::string&) { return count(lists_); };
    receiver.on_event = [&](const WatchEvent&) {
      count(events_);
      on_event();
      return true;
    };
    Reflector reflector(*client_, receiver, Rng(1), Logger(), metrics_);
    reflector.Start();
    {
      std::unique_lock lock(mutex_);
      EXPECT_TRUE(changed.wait_for(lock, kPatience, [&] { return events_ >= 2; }));
    }
    client_->Stop();
    reflector.Stop();
  }

  std::string lines_;
  std::mutex mutex_;                   // of the next two
  std::vector<std::string> versions_;  // that watches asked to begin after
  int lists_ = 0, events_ = 0;
  MetricRegistry metrics_;
  httplib::Server server_;
  std::optional<LoopbackServer> loopback_;
  std::optional<KubeClient> client_;
};

TEST_F(ReflectorTest, ALineThatIsNoEventIsListedAgainAfterWhatCameBeforeIt) {
  Run("{\"type\": \"MODIFIED\", \"object\": null}\n");
  EXPECT_GE(lists_, 2);
  EXPECT_GE(metrics_.Value(kMetric, {{"reason", "garbled"}}), 1);
  EXPECT_EQ(metrics_.Value(kMetric, {{"reason", "failed"}}), 0);
}

TEST_F(ReflectorTest, AnErrorWithoutAMessageIsAFailureLikeAnyOther) {
  Run("{\"type\": \"ERROR\", \"object\": {\"code\": 500, \"message\": null}}\n");
  EXPECT_GE(metrics_.Value(kMetric, {{"reason", "failed"}}), 1);
}

TEST_F(ReflectorTest, AWatchGoesOnAfterTheLastEventOfTheOneBeforeIt) {
  Run("");
  ASSERT_GE(versions_.size(), 2u);
  EXPECT_EQ(versions_[0], "7") << "the list's";
  EXPECT_EQ(versions_[1], "8") << "the event's";
}

// As a proxy does that cuts streams, or a server that is overloaded.
TEST_F(ReflectorTest, AWatchThatEndsAsSoonAsItBeginsIsCountedAndNotBegunAtOnce) {
  Run("");
  EXPECT_EQ(lists_, 1) << "nothing was lost";
  EXPECT_GE(metrics_.Value(kMetric, {{"reason", "short"}}), 1);
}

TEST_F(ReflectorTest, VersionsThatExpireAgainAndAgainAreListedAgain) {
  Run("{\"type\": \"ERROR\", \"object\": {\"code\": 410}}\n");
  EXPECT_GE(lists_, 2);
  EXPECT_GE(metrics_.Value(kMetric, {{"reason", "expired"}}), 1);
}

TEST_F(ReflectorTest, AnExceptionIsAFailureAndEndsNothing) {
  Run("", [] { throw std::runtime_error("a projection that nobody thought of"); });
  EXPECT_GE(lists_, 2) << "what it was about may be lost";
  EXPECT_GE(metrics_.Value("crowdsurf_operator_exceptions_total", {{"thread", "client"}}), 1);
  EXPECT_GE(metrics_.Value(kMetric, {{"reason", "failed"}}), 1);
}

}  // namespace
}  // namespace crowdsurf::controller
