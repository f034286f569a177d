// The logs of pods, from an API server of the test's own that answers as the Kubernetes API
// reference says: jobs, pods by label, and logs as plain text.
#include "cli/logs/cluster_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include "tests/support/loopback_server.h"
#include "tests/unit/cli/logs/pipe_reader.h"
#include "tests/unit/operator_edge/kube/plain_endpoint.h"

namespace crowdsurf::cli {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ClusterLogsTest : public ::testing::Test {
 protected:
  static constexpr char kJobs[] = "/apis/crowdsurf.io/v1alpha1/namespaces/ml/trainingjobs";
  static constexpr char kPods[] = "/api/v1/namespaces/ml/pods";

  void SetUp() override {
    options_.job = "charlm";
    job_ = {{"metadata", {{"name", "charlm"}, {"uid", "u-1"}}},
            {"spec", {{"template", {{"spec", {{"containers", {{{"name", "main"}}}}}}}}}}};
    server_.Get(".*", [this](const httplib::Request& request, httplib::Response& response) {
      const std::lock_guard lock(mutex_);
      Answer(request, response);
    });
    loopback_.emplace(server_);
  }

  void Answer(const httplib::Request& request, httplib::Response& response) {
    const std::string& path = request.path;
    const auto refuse = [&](int code, const std::string& message) {
      response.status = code;
      response.set_content(json({{"kind", "Status"}, {"message", message}}).dump(),
                           "application/json");
    };
    const auto list = [&](const json& items) {
      response.set_content(
          json({{"metadata", {{"resourceVersion", "1"}}}, {"items", items}}).dump(),
          "application/json");
    };
    if (path == kJobs) return list(json::array({job_}));
    if (path == std::string(kJobs) + "/charlm") {
      return response.set_content(job_.dump(), "application/json");
    }
    if (path == kPods) {
      selector_ = request.get_param_value("labelSelector");
      json items = json::array();
      for (const auto& [name, log] : pods_) items.push_back({{"metadata", {{"name", name}}}});
      return list(items);
    }
    for (const auto& [name, log] : pods_) {
      if (path != std::string(kPods) + "/" + name + "/log") continue;
      asked_.push_back(name + " " + request.get_param_value("container") + " " +
                       request.get_param_value("tailLines") + " " +
                       request.get_param_value("follow"));
      if (log.empty())
        return refuse(400, "container \"main\" in pod is waiting to start: Creating");
      return response.set_content(log, "text/plain");
    }
    refuse(404, "not found: " + path);
  }

  // All that is printed; an error's words instead.
  std::string Logs() {
    PipeReader reader;
    LinePrinter printer(reader.input(), Prefix::kName);
    controller::KubeClient client(controller::PlainEndpoint(loopback_->port()), {});
    const Status printed =
        PrintClusterLogs(options_, "ml", client, printer,
                         [&](const std::string& words) { notes_.push_back(words); });
    return printed.ok() ? reader.Rest() : std::string(printed.message());
  }

  LogsOptions options_;
  std::mutex mutex_;
  json job_;
  std::map<std::string, std::string> pods_;  // name -> log; empty: it is yet to start
  std::string selector_;
  std::vector<std::string> asked_, notes_;
  httplib::Server server_;
  std::optional<LoopbackServer> loopback_;
};

TEST_F(ClusterLogsTest, TheNewestPodOfEachIndexIsAskedForTheTrainersLog) {
  pods_ = {{"charlm-0-1", "old\n"}, {"charlm-0-2", "a\nb\n"}, {"charlm-1-1", "c\n"}};
  options_.tail = 10;
  EXPECT_EQ(Logs(), "charlm-0-2 | a\ncharlm-0-2 | b\ncharlm-1-1 | c\n");
  EXPECT_THAT(asked_, ElementsAre("charlm-0-2 main 10 ", "charlm-1-1 main 10 "));
  EXPECT_EQ(selector_, "crowdsurf.io/job-uid=u-1")
      << "pods of an earlier job of the name are not it";
}

TEST_F(ClusterLogsTest, OneWorkerItsAgentAndItsPredecessor) {
  pods_ = {{"charlm-0-1", "old\n"}, {"charlm-0-2", "new\n"}};
  options_.worker = "0";
  options_.of = LogOf::kAgent;
  EXPECT_EQ(Logs(), "charlm-0-2 | new\n");
  options_.which = Which::kPrevious;
  EXPECT_EQ(Logs(), "charlm-0-1 | old\n");
  EXPECT_THAT(asked_, ElementsAre("charlm-0-2 crowdsurf-agent  ", "charlm-0-1 crowdsurf-agent  "));
}

TEST_F(ClusterLogsTest, WhatIsNotThereIsSaidWithWhatIs) {
  pods_ = {{"charlm-0-1", "a\n"}};
  options_.worker = "charlm-7-1";
  EXPECT_EQ(Logs(), "no worker charlm-7-1; there are charlm-0-1");
  options_.job = "charm/x";
  EXPECT_EQ(Logs(), "no job charm/x in namespace ml; there are charlm");
}

TEST_F(ClusterLogsTest, OfAPodThatIsGoneTheStatusHasTheLastWords) {
  pods_ = {{"charlm-0-2", "a\n"}};
  job_["status"]["failures"]["last"] = {{"worker", "charlm-0-1"}, {"output", "x\nValueError: y\n"}};
  options_.worker = "charlm-0-1";
  EXPECT_EQ(Logs(), "charlm-0-1 | x\ncharlm-0-1 | ValueError: y\n");
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("the pod of charlm-0-1 is gone")));
}

TEST_F(ClusterLogsTest, OfAJobWithoutPodsTheLastFailureIsWhatThereIs) {
  EXPECT_EQ(Logs(), "job charlm has no pod now");
  job_["status"]["failures"]["last"] = {{"worker", "charlm-0-7"}, {"output", "ValueError: y\n"}};
  EXPECT_EQ(Logs(), "charlm-0-7 | ValueError: y\n");
}

TEST_F(ClusterLogsTest, APodThatIsYetToStartHidesNoOther) {
  pods_ = {{"charlm-0-1", ""}, {"charlm-1-1", "c\n"}};
  EXPECT_EQ(Logs(), "charlm-1-1 | c\n");
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("waiting to start")));
  options_.worker = "0";
  EXPECT_THAT(Logs(), HasSubstr("waiting to start"));
}

TEST_F(ClusterLogsTest, AFollowerTakesNewPodsAndThoseThatStartLaterUntilTheJobIsOver) {
  pods_ = {{"charlm-0-1", "a\n"}, {"charlm-1-1", ""}};
  options_.follow = Follow::kYes;
  options_.tail = 3;
  PipeReader reader;
  LinePrinter printer(reader.input(), Prefix::kName);
  controller::KubeClient client(controller::PlainEndpoint(loopback_->port()), {});
  Status followed;
  std::thread follower([&] {
    followed = PrintClusterLogs(options_, "ml", client, printer, [](const std::string&) {});
  });
  EXPECT_EQ(reader.NextLine(), "charlm-0-1 | a");
  {
    const std::lock_guard lock(mutex_);
    pods_["charlm-1-1"] = "late\n";
  }
  EXPECT_EQ(reader.NextLine(), "charlm-1-1 | late");
  {
    const std::lock_guard lock(mutex_);
    pods_.erase("charlm-0-1");
    pods_["charlm-0-2"] = "new\n";
  }
  EXPECT_EQ(reader.NextLine(), "charlm-0-2 | new");
  {
    const std::lock_guard lock(mutex_);
    job_["status"]["conditions"] = {{{"type", "Succeeded"}, {"status", "True"}}};
  }
  follower.join();
  EXPECT_TRUE(followed.ok()) << followed;
  EXPECT_EQ(reader.Rest(), "");
  EXPECT_THAT(asked_, ::testing::IsSupersetOf({std::string("charlm-0-1 main 3 true"),
                                               std::string("charlm-0-2 main  true")}));
}

TEST_F(ClusterLogsTest, MoreThanCanBeFollowedIsSaid) {
  for (size_t i = 0; i <= kMaxFollowed; ++i) pods_["charlm-" + std::to_string(i) + "-1"] = "a\n";
  options_.follow = Follow::kYes;
  options_.tail = 0;
  EXPECT_THAT(Logs(), HasSubstr("more than 64 workers cannot be followed at once"));
}

}  // namespace
}  // namespace crowdsurf::cli
