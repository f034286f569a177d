// The operator beside a real kube-apiserver without nodes, in a namespace of its own a test: the
// test plays the kubelet by patching pods' status. Waits are for what the API server says, bounded
// by kPatience. Needs the KUBECONFIG that `./dev test cluster` sets, and the repository's root as
// the working directory. One thread a test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/edge/clock.h"
#include "operator/core/job/rfc3339.h"
#include "operator/edge/controller.h"
#include "operator/edge/local/yaml.h"

namespace crowdsurf::controller {

inline constexpr std::chrono::seconds kPatience{60};  // a test fails by it, and never waits for it

using Json = nlohmann::json;

// One life of the operator: dropping it is what kill -9 leaves behind, since nothing is flushed.
class Operator {
 public:
  Operator(const KubeEndpoint& endpoint, const std::string& space, const std::string& agent_image)
      : client_(endpoint, {}),
        cluster_(client_,
                 {.pods = {agent_image, "https://signer:9443", SpotPlacement::kPreferred},
                  .space = space,
                  .trust = [](const TrainingJob&) { return std::string("CA"); },
                  .clock = WallNow,
                  .probe =
                      [this](const DeathReports::Probe& probe) {
                        return cluster_.PostProbe(probe.uid, agents_answer ? ProbeResult::kAnswers
                                                                           : ProbeResult::kSilent);
                      }},
                 Rng(1), Logger(), metrics_),
        controller_(cluster_, Options(agent_image), metrics_, Logger()) {
    cluster_.Start();
    thread_ = std::thread([this] { controller_.Run(); });
  }
  ~Operator() {
    controller_.Stop();
    thread_.join();
    client_.Stop();
    cluster_.Stop();
  }
  KubeCluster& cluster() { return cluster_; }
  std::atomic<bool> agents_answer{false};  // when the operator asks who is reported dead

 private:
  static ControllerOptions Options(const std::string& agent_image) {
    ControllerOptions options;
    options.decide.agent_image = agent_image;
    options.ask_agents = false;
    options.decide.crash_backoff.initial = Milliseconds(50);
    return options;
  }
  MetricRegistry metrics_;
  KubeClient client_;
  KubeCluster cluster_;
  Controller controller_;
  std::thread thread_;
};

class OperatorTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    signal(SIGPIPE, SIG_IGN);
    const auto endpoint = LoadDefaultKubeEndpoint();
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    KubeClient client(*endpoint, {});
    std::ifstream file("deploy/crd/trainingjobs.yaml");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto crd = ReadYaml(text);
    ASSERT_TRUE(crd.ok()) << crd.status();
    const std::string path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/";
    ASSERT_TRUE(client
                    .Patch(path + "trainingjobs.crowdsurf.io?fieldManager=test&force=true",
                           PatchType::kApply, crd->document)
                    .ok());
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!client.List("/apis/crowdsurf.io/v1alpha1/trainingjobs").ok()) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "the CRD is not served";
      // A CRD is Established a moment before it is served, which the server tells nobody: it is
      // asked again, until `until`.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  void SetUp() override {
    endpoint_ = *LoadDefaultKubeEndpoint();
    client_ = std::make_unique<KubeClient>(endpoint_, KubeClient::Options{});
    space_ = absl::StrCat("operator-test-", getpid(), "-", ++fixtures);
    ASSERT_TRUE(client_->Create("/api/v1/namespaces", {{"metadata", {{"name", space_}}}}).ok());
    // Pods wait for their ServiceAccount.
    Eventually("the default account", [&] {
      return client_->Get("/api/v1/namespaces/" + space_ + "/serviceaccounts/default").ok();
    });
    core_ = "/api/v1/namespaces/" + space_ + "/";
    jobs_ = "/apis/crowdsurf.io/v1alpha1/namespaces/" + space_ + "/trainingjobs";
  }
  void TearDown() override {
    operator_.reset();
    EXPECT_TRUE(client_->Delete("/api/v1/namespaces/" + space_).ok());
    for (const std::string& node : nodes_) (void)client_->Delete("/api/v1/nodes/" + node);
  }

  void StartOperator(const std::string& agent_image = "crowdsurf/worker:test") {
    operator_ = std::make_unique<Operator>(endpoint_, space_, agent_image);
  }
  void KillOperator() { operator_.reset(); }

  static Json Job(int replicas) {
    return {{"apiVersion", "crowdsurf.io/v1alpha1"},
            {"kind", "TrainingJob"},
            {"metadata", {{"name", "job"}}},
            {"spec",
             {{"replicas", replicas},
              {"target", {{"samples", 1000}}},
              {"template",
               {{"spec", {{"containers", {{{"name", "trainer"}, {"image", "user/image"}}}}}}}}}}};
  }
  std::map<std::string, Json> Pods() {
    std::map<std::string, Json> pods;
    const auto list = client_->List(core_ + "pods");
    if (!list.ok()) return pods;
    for (const Json& pod : list->items) pods[pod["metadata"]["name"]] = pod;
    return pods;
  }
  std::string Names() {
    std::string names;
    for (const auto& [name, pod] : Pods()) names += name + " ";
    return names;
  }
  Json JobStatus() {
    const auto job = client_->Get(jobs_ + "/job");
    return job.ok() ? job->value("status", Json::object()) : Json::object();
  }
  bool Eventually(const std::string& what, const std::function<bool()>& holds) {
    const auto begun = std::chrono::steady_clock::now();
    while (!holds()) {
      if (std::chrono::steady_clock::now() - begun > kPatience) {
        ADD_FAILURE() << "never: " << what << "; pods: " << Names() << " status: " << JobStatus();
        return false;
      }
      // What `holds` asks spans pods, status and metrics: no one watch tells of it. Bounded by
      // kPatience.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    std::cout << what << ": "
              << std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count()
              << " s\n";
    return true;
  }
  // As its kubelet: the trainer runs, or has ended with `code`.
  void Play(const std::string& pod, const char* phase, std::optional<int> code) {
    Json state = {{"running", Json::object()}};
    if (code) state = {{"terminated", {{"exitCode", *code}, {"reason", "Error"}}}};
    const std::string ready = code ? "False" : "True";
    const auto patched =
        client_->Patch(core_ + "pods/" + pod + "/status", PatchType::kStrategicMerge,
                       {{"status",
                         {{"phase", phase},
                          {"podIP", "10.9.9.9"},
                          {"conditions",
                           {{{"type", "Ready"},
                             {"status", ready},
                             {"lastTransitionTime", "2026-01-01T00:00:00Z"}}}},
                          {"containerStatuses",
                           {{{"name", "trainer"},
                             {"state", state},
                             {"ready", !code},
                             {"restartCount", 0},
                             {"image", "i"},
                             {"imageID", ""}}}}}}});
    ASSERT_TRUE(patched.ok()) << patched.status();
  }
  void AddNode(const std::string& name) {
    nodes_.push_back(name);
    ASSERT_TRUE(client_->Create("/api/v1/nodes", {{"metadata", {{"name", name}}}}).ok());
  }
  // As its kubelet or the controller manager.
  void SetReady(const std::string& node, const char* ready) {
    const auto patched =
        client_->Patch("/api/v1/nodes/" + node + "/status", PatchType::kStrategicMerge,
                       {{"status",
                         {{"conditions",
                           {{{"type", "Ready"},
                             {"status", ready},
                             {"lastTransitionTime", FormatInstant(WallNow())}}}}}}});
    ASSERT_TRUE(patched.ok()) << patched.status();
  }
  void Bind(const std::string& pod, const std::string& node) {
    const auto bound = client_->Create(core_ + "pods/" + pod + "/binding",
                                       {{"apiVersion", "v1"},
                                        {"kind", "Binding"},
                                        {"metadata", {{"name", pod}}},
                                        {"target", {{"kind", "Node"}, {"name", node}}}});
    ASSERT_TRUE(bound.ok()) << bound.status();
  }

  inline static int fixtures = 0;
  KubeEndpoint endpoint_;
  std::unique_ptr<KubeClient> client_;
  std::unique_ptr<Operator> operator_;
  std::vector<std::string> nodes_;
  std::string space_, core_, jobs_;
};

}  // namespace crowdsurf::controller
