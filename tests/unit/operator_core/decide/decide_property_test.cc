#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/unit/operator_core/decide/world.h"

// Random histories of a platform that misbehaves in every way it can. What must hold is checked
// from the world's facts, not from the policies; a failing history prints its seed.
namespace crowdsurf::controller {
namespace {

// One thing that the platform (or, when `user_faults`, the user's code) does to a random pod.
void Happen(World& world, Rng& rng, bool user_faults) {
  if (world.pods.empty()) return;
  auto it = world.pods.begin();
  std::advance(it, static_cast<long>(rng.Uniform(world.pods.size())));
  const std::string name = it->first;
  PodFacts& pod = it->second;
  const bool placed = !pod.node.empty() && world.nodes.count(pod.node) > 0;
  switch (rng.Uniform(user_faults ? 11 : 9)) {
    case 0:
    case 1:
      if (pod.phase == PodPhase::kPending && !pod.deleted) world.Start(name);
      return;
    case 2:
      if (placed) world.TakeNode(name);
      return;
    case 3:
      if (placed) {
        world.nodes[pod.node].mark = Mark{
            "Spot", world.now + Seconds(static_cast<double>(rng.Uniform(60))), rng.Bernoulli(0.2)};
      }
      return;
    case 4:
      if (placed) world.nodes[pod.node].mark.reset();
      return;
    case 5:
      if (placed) world.nodes[pod.node].not_ready_since = world.now;
      return;
    case 6:
      if (!pod.deleted) pod.deleted = world.now;  // somebody's kubectl delete
      return;
    case 7:
      if (placed) {
        pod.disruption_target = "EvictionByEvictionAPI";
        world.EndTrainer(name, rng.Bernoulli(0.5) ? 137 : 1);
      }
      return;
    case 8:
      world.pods.erase(it);  // PodGC
      return;
    default:
      if (placed && !pod.deleted) world.EndTrainer(name, static_cast<int>(rng.Uniform(3)));
  }
}

void CheckAlways(const World& world, const Plan& plan) {
  const TrainingJobSpec& spec = world.snapshot.job.spec;
  EXPECT_LE(world.Alive(), spec.max_replicas);
  EXPECT_LE(plan.status.ready_replicas, plan.status.replicas);
  EXPECT_LE(plan.status.replicas, spec.max_replicas);
  if (!plan.status.finished()) {
    // A worker that never ran pauses (pod-lifecycle 4.11). All others are there.
    const auto& retry = plan.status.retry;
    const auto paused = std::count_if(retry.begin(), retry.end(), [&](const auto& one) {
      return one.second.not_before > world.now && one.first < spec.replicas;
    });
    EXPECT_GE(world.Alive() + paused, spec.min_replicas);
  }
  for (const Condition& condition : plan.status.conditions) {
    EXPECT_FALSE(condition.reason.empty()) << Name(condition.type);
  }
  EXPECT_EQ(StatusFromJson(StatusToJson(plan.status)), plan.status);
}

void RunHistory(uint64_t seed, bool user_faults) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  const int replicas = 1 + static_cast<int>(rng.Uniform(12));
  World world(replicas);
  world.snapshot.job.spec.run.backoff_limit = user_faults ? 1000 : 0;
  world.options.crash_backoff.initial = Seconds(1);
  if (seed % 2 == 0) world.options.notice_first = Milliseconds(250);
  // With failures a worker may be backing off; with disruptions alone the job is whole but for
  // workers that never ran.
  world.snapshot.job.spec.min_replicas = user_faults ? 0 : replicas;
  for (int step = 0; step < 60; ++step) {
    for (uint64_t n = rng.Uniform(4); n > 0; --n) Happen(world, rng, user_faults);
    if (rng.Bernoulli(0.2)) world.Bury();
    world.Wait(Milliseconds(static_cast<int64_t>(1000 * rng.Uniform(20) + 1000)));
    world.Reconcile();
    world.Wait(world.options.notice_first);  // whoever was told just now is replaced then
    CheckAlways(world, world.Reconcile());
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_FALSE(world.snapshot.status.Is(ConditionType::kFailed));
  if (!user_faults) {
    EXPECT_EQ(world.snapshot.status.failures, 0u);
  }
  // Calm returns: everything must be whole and quiet soon.
  for (auto& [name, node] : world.nodes) node = NodeFacts();
  for (int turn = 0; turn < 20; ++turn) {
    world.Wait(Seconds(60));
    world.Bury();
    world.StartAll();
    world.Reconcile();
  }
  world.Bury();
  world.StartAll();
  world.Settle();
  EXPECT_EQ(world.Alive(), replicas);
  EXPECT_FALSE(world.Reconcile().status_changed) << "no flapping status";
}

TEST(DecidePropertyTest, DisruptionsAloneNeverFailAJobAndNeverLeaveItShort) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    RunHistory(seed, /*user_faults=*/false);
    if (HasFailure()) return;
  }
}

TEST(DecidePropertyTest, WithFailuresTooReplicasStayInBoundsAndNoNameIsUsedTwice) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    RunHistory(seed, /*user_faults=*/true);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace crowdsurf::controller
