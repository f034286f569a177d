#include "operator/core/decide/decide.h"
#include "operator/core/job/rfc3339.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/operator_core/decide/world.h"

// pod-lifecycle 1.4. A pod is told again: docs/decisions/operator/017-pods-are-told-twice.md.
namespace crowdsurf::controller {
namespace {

using ::testing::ElementsAre;

TEST(TellingTest, WhatAPodIsToldIsFollowedByOneMoreChangeOfThePod) {  // kubelet may miss one
  World world = Running(1);
  PodFacts& pod = world.pods.at("job-0-1");
  pod.annotations[std::string(kNotifiedAtAnnotation)] = FormatInstant(world.now);
  const Plan early = world.Reconcile();
  EXPECT_TRUE(early.annotations.empty());
  EXPECT_EQ(early.requeue_at, world.now + Milliseconds(500));
  world.Wait(Milliseconds(500));
  const Plan again = world.Reconcile();
  ASSERT_EQ(again.annotations.size(), 1u);
  EXPECT_EQ(again.annotations[0].key, kNotifiedAtAnnotation);
  EXPECT_EQ(again.annotations[0].value, "");
  EXPECT_TRUE(world.Reconcile().annotations.empty()) << "once";
}

TEST(TellingTest, ANoticeIsFollowedByThreeMoreChangesOfThePodTheFirstOneSoon) {
  World world = Running(1);
  PodFacts& pod = world.pods.at("job-0-1");
  const WallTime begun = world.now;
  const std::string told = FormatInstant(begun);
  pod.annotations[std::string(kNotifiedAtAnnotation)] = told;
  pod.annotations[std::string(kNoticeAnnotation)] = R"({"reason":"Taint"})";
  world.nodes[pod.node].mark = Mark{"Taint", std::nullopt, false};
  const auto changes = [&] {
    std::vector<std::string> values;
    for (const AnnotatePod& note : world.Reconcile().annotations) {
      if (note.name == "job-0-1" && note.key == kNotifiedAtAnnotation) values.push_back(note.value);
    }
    return values;
  };
  for (const auto& [after, value] :
       {std::pair(150, told + " 1"), std::pair(500, told + " 2"), std::pair(1500, std::string())}) {
    EXPECT_THAT(changes(), ElementsAre()) << "before " << after;
    EXPECT_EQ(world.Reconcile().requeue_at, begun + Milliseconds(after));
    world.now = begun + Milliseconds(after);
    EXPECT_THAT(changes(), ElementsAre(value));
  }
  EXPECT_THAT(changes(), ElementsAre()) << "once each";
}

TEST(TellingTest, AReplacementComesWhenItsPredecessorsKubeletHasLooked) {
  World world = Running(3);
  world.options.notice_first = Milliseconds(250);
  world.nodes["node-job-0-1"].mark = Mark{"Taint", std::nullopt, false};
  world.TakeNode("job-1-1");
  const WallTime begun = world.now;
  Plan plan = world.Reconcile();
  ASSERT_EQ(plan.annotations.size(), 1u);
  EXPECT_EQ(plan.annotations[0].key, kNoticeAnnotation);
  ASSERT_EQ(plan.creates.size(), 1u) << "others do not wait";
  EXPECT_EQ(plan.creates[0].name, "job-1-2");
  EXPECT_EQ(plan.requeue_at, begun + Milliseconds(250));
  world.StartAll();
  PodFacts& pod = world.pods.at("job-0-1");
  pod.annotations[std::string(kNotifiedAtAnnotation)] = FormatInstant(begun + Milliseconds(10));
  world.now = begun + Milliseconds(259);
  EXPECT_TRUE(world.Reconcile().creates.empty());
  world.now = begun + Milliseconds(260);
  plan = world.Reconcile();
  ASSERT_EQ(plan.creates.size(), 1u);
  EXPECT_EQ(plan.creates[0].name, "job-0-2");
  EXPECT_EQ(plan.status.disruptions, 2u);
}

TEST(TellingTest, WhoCannotBeToldIsReplacedAllTheSame) {
  World world = Running(1);
  world.options.notice_first = Milliseconds(250);
  world.nodes["node-job-0-1"].mark = Mark{"Taint", std::nullopt, false};
  world.snapshot.untold.insert(world.pods.at("job-0-1").uid);
  EXPECT_EQ(world.Reconcile().creates.size(), 1u);
}

TEST(TellingTest, ALateOperatorMakesTheLastChangeAtOnce) {  // and one that cannot read the instant
  for (const std::string& told : {std::string("long ago 1"), FormatInstant(WallTime()) + " 1"}) {
    World world = Running(1);
    PodFacts& pod = world.pods.at("job-0-1");
    pod.annotations[std::string(kNotifiedAtAnnotation)] = told;
    const Plan plan = world.Reconcile();
    ASSERT_EQ(plan.annotations.size(), 1u) << told;
    EXPECT_EQ(plan.annotations[0].value, "");
  }
}

TEST(TellingTest,
     WhoIsToldSomethingNewIsNotToldTheOldAgainInTheSamePlan) {  // patches have no order
  World world = Running(1);
  PodFacts& pod = world.pods.at("job-0-1");
  pod.annotations[std::string(kNotifiedAtAnnotation)] = FormatInstant(world.now);
  pod.annotations[std::string(kConfigAnnotation)] = "old";
  world.Wait(Milliseconds(500));
  const Plan plan = world.Reconcile();
  ASSERT_EQ(plan.annotations.size(), 1u);
  EXPECT_EQ(plan.annotations[0].key, kConfigAnnotation);
}

}  // namespace
}  // namespace crowdsurf::controller
