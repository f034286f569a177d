// Whose an object is: only the controller's uid says.
#include "operator/core/job/ownership.h"

#include <gtest/gtest.h>

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

TrainingJob Vic() {
  TrainingJob job;
  job.name = "vic";
  job.uid = "u-2";
  return job;
}

json By(const char* version, const char* kind, const char* name, const char* uid,
        bool controller = true) {
  return {{"metadata",
           {{"ownerReferences",
             {{{"apiVersion", version},
               {"kind", kind},
               {"name", name},
               {"uid", uid},
               {"controller", controller}}}}}}};
}
constexpr char kOurs[] = "crowdsurf.io/v1alpha1";

TEST(OwnershipTest, OnlyTheControllersUidMakesAnObjectOurs) {
  EXPECT_EQ(OwnershipOf(By(kOurs, "TrainingJob", "vic", "u-2"), Vic()), Ownership::kOurs);
  for (const json& others :
       {json::object(), json{{"metadata", {{"ownerReferences", "odd"}}}},
        By(kOurs, "TrainingJob", "vic", "u-2", false), By(kOurs, "TrainingJob", "other", "u-9"),
        By("apps/v1", "Deployment", "vic", "u-1"), By("evil.io/v1", "TrainingJob", "vic", "u-1")}) {
    EXPECT_EQ(OwnershipOf(others, Vic()), Ownership::kForeign) << others;
  }
  json labelled = json::object();
  labelled["metadata"]["labels"]["crowdsurf.io/job-uid"] = "u-2";
  EXPECT_EQ(OwnershipOf(labelled, Vic()), Ownership::kForeign) << "anybody may write a label";
}

TEST(OwnershipTest, WhatAJobOfThisNameLeftBehindIsWaitedFor) {
  EXPECT_EQ(OwnershipOf(By(kOurs, "TrainingJob", "vic", "u-1"), Vic()), Ownership::kLeaving);
  json going = By(kOurs, "TrainingJob", "vic", "u-2");
  going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  EXPECT_EQ(OwnershipOf(going, Vic()), Ownership::kLeaving);
}

TEST(OwnershipTest, OwnersAreNamedAndOddNamesAreNot) {
  EXPECT_EQ(OwnerText(json::object()), "nobody's");
  EXPECT_EQ(OwnerText(By("apps/v1", "Deployment", "web", "u")), "Deployment/web's");
  EXPECT_EQ(OwnerText(By("v1", "a\nb", "\xf0\x9f", "u")), "an object/?'s");
}

TEST(OwnershipTest, WhatAServerAddsCountsForNothing) {
  const json wanted = {{"spec", {{"ports", {{{"port", 1}}, {{"port", 2}}}}, {"a", "b"}}}};
  json found = {
      {"spec",
       {{"ports", {{{"port", 1}, {"protocol", "TCP"}}, {{"port", 2}}}}, {"a", "b"}, {"more", 1}}},
      {"status", 1}};
  EXPECT_TRUE(Holds(found, wanted));
  found["spec"]["ports"].push_back({{"port", 3}});
  EXPECT_FALSE(Holds(found, wanted)) << "somebody opened a port";
  found["spec"]["ports"] = json::array();
  EXPECT_FALSE(Holds(found, wanted));
  EXPECT_FALSE(Holds(json("text"), wanted));
}

TEST(OwnershipTest, NamesOfObjectsAreWhatKubernetesTakes) {
  for (const char* good : {"a", "charlm-0-1", "a.b", "0"}) EXPECT_TRUE(IsObjectName(good)) << good;
  for (const std::string& bad :
       {std::string(), std::string("a,URI:b"), std::string("a/b"), std::string("A"),
        std::string("a "), std::string("-a"), std::string("a."), std::string("a\0b", 3),
        std::string("\xc3\xa4"), std::string(254, 'a')}) {
    EXPECT_FALSE(IsObjectName(bad)) << bad;
  }
}

}  // namespace
}  // namespace crowdsurf::controller
