// LivingCluster: a KubeCluster over an API server that remembers (object_server.h), for tests of
// what the operator's writes make of it.
//
// One job, team/crowd. The test's thread is the operator's; the server and the watches have theirs.
// A life of the operator may end and another begin upon what the server holds.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "operator/core/job/json_path.h"
#include "operator/edge/kube/kube_cluster.h"
#include "tests/unit/operator_edge/kube/kube_cluster_fixture.h"
#include "tests/unit/operator_edge/kube/object_server.h"

namespace crowdsurf::controller {

class LivingCluster : public testing::Test {
 protected:
  using Json = nlohmann::json;
  static constexpr char kJob[] = "team/crowd";

  void Start() {
    if (api_.Find("trainingjobs", kJob).is_null()) api_.Put("trainingjobs", Job());
    StartOperator();
  }
  // Another life of the operator: the one before ends as by kill -9, with nothing written.
  void StartOperator() {
    if (cluster_) StopOperator();
    client_ = std::make_unique<KubeClient>(api_.endpoint(), KubeClient::Options{});
    KubeClusterOptions options;
    options.trust = [](const TrainingJob&) { return std::string("CA"); };
    options.clock = [this] { return now_; };
    metrics_ = std::make_unique<MetricRegistry>();
    cluster_ = std::make_unique<KubeCluster>(*client_, options, Rng(1), Logger(), *metrics_);
    cluster_->Start();
    EXPECT_TRUE(Until([&] { return cluster_->synced(); }));
  }
  void StopOperator() {
    client_->Stop();
    cluster_->Stop();
    cluster_.reset();
    client_.reset();
  }
  void TearDown() override {
    if (cluster_) StopOperator();
  }
  // Takes news until it holds; false after long enough to say that it never does.
  bool Until(const std::function<bool()>& holds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!holds()) {
      const auto now = std::chrono::steady_clock::now();
      if (now > until) return false;
      cluster_->Await(now + std::chrono::milliseconds(20));
    }
    return true;
  }
  // Until the watch of jobs has told the newest: an event behind it on the same watch shows.
  void AwaitVersion() {
    Json marker = Job();
    marker["metadata"]["name"] = "marker";
    marker["metadata"]["uid"] = "marker-uid";
    api_.Put("trainingjobs", marker);
    EXPECT_TRUE(Until([&] {
      const auto keys = cluster_->Jobs();
      return std::find(keys.begin(), keys.end(), "team/marker") != keys.end();
    }));
  }
  JobSnapshot Observe() {
    auto snapshot = cluster_->Observe(kJob);
    EXPECT_TRUE(snapshot.ok()) << snapshot.status();
    return snapshot.ok() ? *snapshot : JobSnapshot();
  }
  std::set<std::string> Touched() { return cluster_->Await(std::chrono::steady_clock::now()); }
  // The job's status at the server.
  Json Shown() { return api_.Find("trainingjobs", kJob).value("status", Json::object()); }

  ObjectServer api_;
  std::unique_ptr<MetricRegistry> metrics_;
  WallTime now_ = WallTime::FromNanoseconds(1'800'000'000'000'000'000);
  std::unique_ptr<KubeClient> client_;
  std::unique_ptr<KubeCluster> cluster_;
};

}  // namespace crowdsurf::controller
