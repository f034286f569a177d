// World: a platform of the tests' own that carries out plans, so that Decide can be driven through
// histories. Pods and nodes are facts in a map; nothing runs. Knows nothing of the policies: what
// it checks, it checks from the facts. Single sequence; bounded by the test's steps.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "operator/core/decide/decide.h"
#include "operator/core/job/validate.h"

namespace crowdsurf::controller {

class World {
 public:
  explicit World(int replicas) {
    const auto spec = WithDefaults({{"replicas", replicas},
                                    {"target", {{"samples", 1000}}},
                                    {"template", nlohmann::json::object()}});
    snapshot.job.name = "job";
    snapshot.job.uid = "uid";
    snapshot.job.spec = SpecFromJson(spec);
  }

  // One reconcile: decide, carry out, and check what must always hold.
  Plan Reconcile() {
    Sync();
    Plan plan = Decide(snapshot, now, options);
    for (const CreatePod& create : plan.creates) {
      EXPECT_TRUE(names.insert(create.name).second) << create.name << " was used before";
      PodFacts pod;
      pod.name = create.name;
      pod.uid = create.name + "-uid";
      pod.index = create.index;
      pod.incarnation = create.incarnation;
      pod.capacity = create.capacity;
      pod.created = now;
      pod.annotations = {{std::string(kConfigAnnotation), create.config},
                         {std::string(kSeedsAnnotation), create.seeds}};
      pods[create.name] = pod;
    }
    for (const DeletePod& pod : plan.deletes) {
      EXPECT_FALSE(pod.reason.empty());
      const auto it = pods.find(pod.name);
      if (it == pods.end()) continue;
      EXPECT_EQ(it->second.uid, pod.uid);
      if (pod.reason == reason::kPeersReportedDead) snapshot.deleted_on_word.push_back(now);
      if (pod.grace && *pod.grace == Duration()) {
        pods.erase(it);
      } else if (!it->second.deleted) {
        it->second.deleted = now;
        it->second.grace = pod.grace.value_or(Seconds(25));
      }
    }
    for (const AnnotatePod& note : plan.annotations) {
      const auto it = pods.find(note.name);
      if (it != pods.end()) it->second.annotations[std::string(note.key)] = note.value;
    }
    snapshot.status = plan.status;
    Sync();
    return plan;
  }

  // Reconciles until nothing more is wanted; fails when that takes more than ten turns.
  Plan Settle() {
    Plan plan = Reconcile();
    for (int turn = 0; turn < 10; ++turn) {
      if (plan.creates.empty() && plan.deletes.empty() && plan.annotations.empty()) return plan;
      plan = Reconcile();
    }
    ADD_FAILURE() << "does not settle";
    return plan;
  }

  // The platform places a pod and it trains.
  void Start(const std::string& name) {
    PodFacts& pod = pods.at(name);
    pod.node = "node-" + name;
    nodes[pod.node];
    pod.phase = PodPhase::kRunning;
    pod.ready_since = now;
    pod.ever_ready = true;
    pod.address = name + ":7946";
  }
  void StartAll() {
    for (auto& [name, pod] : pods) {
      if (pod.phase == PodPhase::kPending && !pod.deleted) Start(name);
    }
  }
  void EndTrainer(const std::string& name, int code, std::string output = "") {
    pods.at(name).trainer =
        ContainerEnd{code, code == 0 ? "Completed" : "Error", std::move(output)};
    pods.at(name).ready_since.reset();
  }
  void TakeNode(const std::string& name) {
    nodes.erase(pods.at(name).node);
    pods.at(name).ready_since.reset();
  }
  // What was told to go, goes.
  void Bury() {
    std::erase_if(pods, [](const auto& entry) { return entry.second.deleted.has_value(); });
    Sync();
  }
  void Wait(Duration time) { now = now + time; }

  int Alive() const {
    int alive = 0;
    for (const auto& [name, pod] : pods) {
      alive += !pod.deleted && !pod.trainer && pod.Annotation(kNoticeAnnotation).empty() &&
               (pod.node.empty() || nodes.count(pod.node));
    }
    return alive;
  }

  WallTime now = WallTime::FromNanoseconds(1'700'000'000'000'000'000);
  DecideOptions options;
  JobSnapshot snapshot;
  std::map<std::string, PodFacts> pods;
  std::map<std::string, NodeFacts> nodes;
  std::set<std::string> names;  // ever used

 private:
  void Sync() {
    snapshot.pods.clear();
    for (const auto& [name, pod] : pods) snapshot.pods.push_back(pod);
    snapshot.nodes = nodes;
  }
};

// A job whose workers all train, seen once more by the operator.
inline World Running(int replicas) {
  World world(replicas);
  world.Reconcile();
  world.StartAll();
  world.Settle();
  return world;
}

}  // namespace crowdsurf::controller
