// What a watch says that is no event is not lost: it is listed again, and counted.
#include "operator/edge/kube/reflector.h"

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <condition_variable>
#include <mutex>

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
      out.set_chunked_content_provider("json", [this](size_t, httplib::DataSink& sink) {
        sink.write(lines_.data(), lines_.size());
        sink.done();
        return true;
      });
    });
    loopback_.emplace(server_);
    client_.emplace(PlainEndpoint(loopback_->port()), KubeClient::Options{});
  }
  // Runs a reflector whose watches say kEvent and `line`, until two of them have given it.
  void Run(const char* line) {
    lines_ = absl::StrCat(kEvent, "\n", line, "\n");
    std::mutex mutex;
    std::condition_variable changed;
    const auto count = [&](int& what) {
      const std::lock_guard lock(mutex);
      ++what;
      changed.notify_all();
      return true;
    };
    Reflector reflector(
        *client_, "/api/v1/pods",
        {[&](KubeList) { return count(lists_); }, [&](WatchEvent) { return count(events_); }},
        Rng(1), Logger(), metrics_);
    reflector.Start();
    {
      std::unique_lock lock(mutex);
      EXPECT_TRUE(changed.wait_for(lock, kPatience, [&] { return events_ >= 2; }));
    }
    client_->Stop();
    reflector.Stop();
  }

  std::string lines_;
  int lists_ = 0, events_ = 0;
  MetricRegistry metrics_;
  httplib::Server server_;
  std::optional<LoopbackServer> loopback_;
  std::optional<KubeClient> client_;
};

TEST_F(ReflectorTest, ALineThatIsNoEventIsListedAgainAfterWhatCameBeforeIt) {
  Run(R"({"type": "MODIFIED", "object": null})");
  EXPECT_GE(lists_, 2);
  EXPECT_GE(metrics_.Value(kMetric, {{"reason", "garbled"}}), 1);
  EXPECT_EQ(metrics_.Value(kMetric, {{"reason", "failed"}}), 0);
}

TEST_F(ReflectorTest, AnErrorWithoutAMessageIsAFailureLikeAnyOther) {
  Run(R"({"type": "ERROR", "object": {"code": 500, "message": null}})");
  EXPECT_GE(metrics_.Value(kMetric, {{"reason", "failed"}}), 1);
}

}  // namespace
}  // namespace crowdsurf::controller
