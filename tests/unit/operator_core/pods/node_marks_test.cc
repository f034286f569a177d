// What clouds write on nodes. Keys, deadlines and weights are written out here from the clouds' own
// pages, not taken from the table under test.
#include "operator/core/pods/node_marks.h"

#include <gtest/gtest.h>

#include <set>

#include "operator/core/job/rfc3339.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr char kSince[] = "2026-11-21T10:00:00Z";

json Tainted(const std::string& key, const std::string& value = "") {
  json node;
  node["spec"]["taints"] = {{{"key", key}, {"value", value}, {"timeAdded", kSince}}};
  return node;
}

json Conditioned(const std::string& type, const std::string& status = "True") {
  json node;
  node["status"]["conditions"] = {
      {{"type", type}, {"status", status}, {"lastTransitionTime", kSince}}};
  return node;
}

// AWS stops a spot machine two minutes after the notice; Azure and GCP give 30 s.
TEST(NodeMarksTest, OnlyANoticeWithAPromiseHasADeadline) {
  const WallTime since = *ParseInstant(kSince);
  EXPECT_EQ(FindMark(Tainted("aws-node-termination-handler/spot-itn"))->deadline,
            since + Seconds(120));
  EXPECT_EQ(FindMark(Conditioned("VMEventScheduled"))->deadline, since + Seconds(30));
  EXPECT_EQ(FindMark(Conditioned("PreemptionScheduled"))->deadline, since + Seconds(30));
  EXPECT_EQ(FindMark(Tainted("karpenter.sh/disrupted"))->deadline, std::nullopt);
  json late = Tainted("aws-node-termination-handler/spot-itn");
  late["spec"]["taints"][0].erase("timeAdded");
  ASSERT_TRUE(FindMark(late).has_value());
  EXPECT_EQ(FindMark(late)->deadline, std::nullopt) << "nobody knows since when";
}

// Azure/AKS#3463, Azure/karpenter-provider-azure#1594: the condition comes for every event.
TEST(NodeMarksTest, AnEventOfAzureIsWhatItsMessageSays) {
  const auto marked = [](const std::string& message) {
    json node = Conditioned("VMEventScheduled");
    node["status"]["conditions"][0]["message"] = message;
    return FindMark(node);
  };
  constexpr char kMore[] =
      "Sat, 21 Nov 2026 10:05:00 GMT. For more information, see https://aka.ms";
  EXPECT_FALSE(marked("Freeze Scheduled: " + std::string(kMore)).has_value())
      << "seconds, and the machine stays";
  for (const std::string event : {"Preempt", "Terminate", "Reboot", "Redeploy"}) {
    const auto mark = marked(event + " Scheduled: " + kMore);
    ASSERT_TRUE(mark.has_value()) << event;
    EXPECT_EQ(mark->deadline, *ParseInstant("2026-11-21T10:05:00Z")) << event;
    EXPECT_FALSE(mark->weak);
  }
  const WallTime least = *ParseInstant(kSince) + Seconds(30);
  for (const char* odd : {"", "Preempt Scheduled: soon",
                          "Preempt Scheduled: ", "Preempt Scheduled: Sat, 21 Nov 2026 09:05:00 GMT",
                          "Preempt Scheduled: Sat, 99 Nov 2026 10:05:00 GMT",
                          "Preempt Scheduled: Sat, 21 Foo 2026 10:05:00 GMT"}) {
    ASSERT_TRUE(marked(odd).has_value()) << odd;
    EXPECT_EQ(marked(odd)->deadline, least) << odd;
  }
}

TEST(NodeMarksTest, WhatMayComeToNothingIsWeakAndAllElseIsNot) {
  for (const json& weak :
       {Tainted("aws-node-termination-handler/rebalance-recommendation"),
        Tainted("DeletionCandidateOfClusterAutoscaler"), Conditioned("MaintenancePlanned"),
        json{{"spec", {{"unschedulable", true}}}}}) {
    ASSERT_TRUE(FindMark(weak).has_value()) << weak;
    EXPECT_TRUE(FindMark(weak)->weak) << weak;
  }
  json ongoing;
  ongoing["metadata"]["labels"]["cloud.google.com/active-node-maintenance"] = "ONGOING";
  for (const json& strong :
       {Tainted("aws-node-termination-handler/spot-itn"),
        Tainted("aws-node-termination-handler/scheduled-maintenance"),
        Tainted("aws-node-termination-handler/asg-lifecycle-termination"),
        Tainted("karpenter.sh/disrupted"), Tainted("karpenter.sh/disruption", "disrupting"),
        Tainted("cloud.google.com/impending-node-termination"), ongoing,
        Tainted("ToBeDeletedByClusterAutoscaler"), Tainted("node.kubernetes.io/out-of-service"),
        Tainted("node.cloudprovider.kubernetes.io/shutdown"), Conditioned("VMEventScheduled"),
        Conditioned("PreemptionScheduled"), Conditioned("GracefulNodeShutdownInProgress"),
        Conditioned("DrainInProgress"), Conditioned("MaintenanceInProgress"),
        json{{"metadata", {{"deletionTimestamp", kSince}}}}}) {
    ASSERT_TRUE(FindMark(strong).has_value()) << strong;
    EXPECT_FALSE(FindMark(strong)->weak) << strong;
  }
}

TEST(NodeMarksTest, AnotherValueIsNoMark) {
  json pending;
  pending["metadata"]["labels"]["cloud.google.com/active-node-maintenance"] = "PENDING";
  for (const json& none :
       {json::object(), Tainted("karpenter.sh/disruption", "candidate"),
        Conditioned("VMEventScheduled", "False"), Conditioned("Ready"), pending,
        Tainted("node.kubernetes.io/not-ready"), json{{"spec", {{"unschedulable", false}}}}}) {
    EXPECT_FALSE(FindMark(none).has_value()) << none;
  }
}

TEST(NodeMarksTest, TheEarliestDeadlineOfAStrongMarkWins) {
  json node = Tainted("aws-node-termination-handler/spot-itn");
  node["spec"]["unschedulable"] = true;
  node["spec"]["taints"].push_back({{"key", "karpenter.sh/disrupted"}});
  EXPECT_EQ(FindMark(node)->signal, "SpotInterruption") << "a deadline before none";
  node["status"] = Conditioned("PreemptionScheduled")["status"];
  EXPECT_EQ(FindMark(node)->signal, "PreemptionScheduled") << "30 s before 120 s";
}

TEST(NodeMarksTest, SpotNodesAreKnownByTheCloudsOwnLabels) {
  std::set<std::string> labels, taints;
  for (const SpotLabel& label : SpotLabels())
    labels.insert(label.key + ("=" + std::string(label.value)));
  for (const SpotTaint& taint : SpotTaints())
    taints.insert(taint.key + ("=" + std::string(taint.value)));
  for (const char* label :
       {"karpenter.sh/capacity-type=spot", "eks.amazonaws.com/capacityType=SPOT",
        "cloud.google.com/gke-spot=true", "cloud.google.com/gke-preemptible=true",
        "kubernetes.azure.com/scalesetpriority=spot",
        "oci.oraclecloud.com/oke-is-preemptible=true"}) {
    EXPECT_TRUE(labels.contains(label)) << label;
  }
  EXPECT_EQ(taints, (std::set<std::string>{"cloud.google.com/gke-spot=true",
                                           "kubernetes.azure.com/scalesetpriority=spot"}));
}

}  // namespace
}  // namespace crowdsurf::controller
