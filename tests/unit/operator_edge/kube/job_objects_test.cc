// Objects of a job's names that are somebody else's: never written to, named, waited for.
#include "operator/edge/kube/job_objects.h"

#include "tests/unit/operator_edge/kube/kube_cluster_fixture.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr char kServices[] = "/api/v1/namespaces/team/services";
constexpr char kService[] = "/api/v1/namespaces/team/services/crowd-peers";
constexpr char kBudgetList[] = "/apis/policy/v1/namespaces/team/poddisruptionbudgets";
constexpr char kPolicy[] =
    "/apis/networking.k8s.io/v1/namespaces/team/networkpolicies/crowd-workers";

class JobObjectsTest : public testing::Test {
 protected:
  void SetUp() override {
    client_ = std::make_unique<KubeClient>(api_.endpoint(), KubeClient::Options{});
    objects_ = std::make_unique<JobObjects>(
        *client_, [](const TrainingJob&) { return std::string("CA"); }, [this] { return now_; },
        Logger());
    job_ = ObserveJob(Job())->job;
    for (const char* made : {kServices, kBudgetList}) api_.Put(made, 201, Owned());
  }
  // An object that stands there, of another: nobody's, or `owner`'s.
  static json Others(json owner = nullptr) {
    json object = {{"metadata", {{"uid", "theirs"}, {"resourceVersion", "1"}}}};
    if (!owner.is_null()) object["metadata"]["ownerReferences"] = json::array({std::move(owner)});
    return object;
  }
  int Writes(const std::string& path) {
    int writes = 0;
    for (const char* verb : {"PATCH ", "PUT ", "DELETE "}) writes += api_.Asked(verb + path);
    return writes;
  }
  void Wait(Duration time) { now_ = now_ + time; }

  FakeApiServer api_;
  WallTime now_ = WallTime::FromNanoseconds(1'800'000'000'000'000'000);
  std::unique_ptr<KubeClient> client_;
  std::unique_ptr<JobObjects> objects_;
  TrainingJob job_;
};

TEST_F(JobObjectsTest, WhatIsNotThereIsMadeOnceWithTheJobAsItsController) {
  objects_->Prepare(job_);
  EXPECT_TRUE(objects_->ensured(job_.uid));
  EXPECT_EQ(objects_->obstacle(job_.uid), std::nullopt);
  const std::string posted = std::string("POST ") + kServices;
  EXPECT_EQ(api_.Body(posted)["metadata"]["ownerReferences"][0]["uid"], "job-uid");
  EXPECT_EQ(objects_->trust(job_.uid), "CA");
  Wait(Seconds(200));
  objects_->Prepare(job_);
  EXPECT_TRUE(objects_->Ensure(job_).ok());
  EXPECT_EQ(api_.Asked(posted), 1);
}

TEST_F(JobObjectsTest, AnothersServiceIsNamedAndNeverWrittenToAndTheJobGoesOnWhenItGoes) {
  api_.Put(kService, 200, Others({{"kind", "Deployment"}, {"name", "x"}, {"controller", true}}));
  objects_->Prepare(job_);
  const auto obstacle = objects_->obstacle(job_.uid);
  ASSERT_TRUE(obstacle.has_value());
  EXPECT_EQ(obstacle->reason, reason::kNameTaken);
  EXPECT_NE(obstacle->message.find("Service/crowd-peers"), std::string::npos) << obstacle->message;
  EXPECT_NE(obstacle->message.find("Deployment/x"), std::string::npos) << obstacle->message;
  EXPECT_TRUE(absl::IsFailedPrecondition(objects_->Ensure(job_)));

  api_.Put(kService, 404, {{"kind", "Status"}, {"code", 404}});
  objects_->Prepare(job_);
  EXPECT_TRUE(objects_->obstacle(job_.uid).has_value()) << "it is looked at again in a while";
  Wait(Seconds(5));
  objects_->Prepare(job_);
  EXPECT_EQ(objects_->obstacle(job_.uid), std::nullopt);
  EXPECT_EQ(Writes(kService), 0);
}

TEST_F(JobObjectsTest, EveryKindIsAskedWhoseItIs) {
  for (const char* taken : {kService, kBudgets}) {
    api_.Put(taken, 200, Others());
    Wait(Seconds(5));
    objects_->Prepare(job_);
    const auto obstacle = objects_->obstacle(job_.uid);
    ASSERT_TRUE(obstacle.has_value()) << taken;
    EXPECT_NE(obstacle->message.find("nobody's"), std::string::npos) << obstacle->message;
    EXPECT_EQ(Writes(taken), 0) << taken;
    api_.Put(taken, 404, {{"kind", "Status"}, {"code", 404}});
  }
}

TEST_F(JobObjectsTest, LeftoversOfADeletedJobOfThisNameAreWaitedFor) {
  api_.Put(kService, 200,
           Others({{"apiVersion", "crowdsurf.io/v1alpha1"},
                   {"kind", "TrainingJob"},
                   {"name", "crowd"},
                   {"uid", "older"},
                   {"controller", true}}));
  objects_->Prepare(job_);
  ASSERT_TRUE(objects_->obstacle(job_.uid).has_value());
  EXPECT_EQ(objects_->obstacle(job_.uid)->reason, reason::kLeftovers);
  EXPECT_EQ(Writes(kService), 0);
}

TEST_F(JobObjectsTest, OursIsChangedWithTheVersionThatWasReadAndOthersOwnersStay) {
  json service = Owned({{"spec", {{"clusterIP", "None"}, {"selector", {{"edited", "by hand"}}}}}});
  service["metadata"]["ownerReferences"].push_back({{"kind", "Node"}, {"uid", "n"}});
  api_.Put(kService, 200, service);
  EXPECT_TRUE(objects_->Ensure(job_).ok());
  const json patch = api_.Body(std::string("PATCH ") + kService);
  EXPECT_EQ(patch["metadata"]["resourceVersion"], "7");
  EXPECT_EQ(patch["metadata"]["uid"], "object-uid");
  EXPECT_FALSE(patch["metadata"].contains("ownerReferences"));
  EXPECT_EQ(patch["spec"]["selector"]["crowdsurf.io/job-uid"], "job-uid");
}

TEST_F(JobObjectsTest, AGuardThatNobodyAsksForAnyMoreIsRemovedOnlyWhereItIsOurs) {
  EXPECT_TRUE(objects_->Ensure(job_).ok());
  job_.generation = 3;
  job_.spec.max_unavailable = nullptr;
  api_.Put(kBudgets, 200, Owned());
  api_.Put(kPolicy, 200, Others());
  Wait(Seconds(5));
  objects_->FollowEdit(job_);
  EXPECT_EQ(api_.Body(std::string("DELETE ") + kBudgets)["preconditions"]["uid"], "object-uid");
  EXPECT_EQ(Writes(kPolicy), 0);
  EXPECT_EQ(objects_->unguarded(job_.uid), "") << "nobody asks for it";

  job_.generation = 4;
  job_.spec.managed_network = true;
  Wait(Seconds(5));
  objects_->FollowEdit(job_);
  EXPECT_NE(objects_->unguarded(job_.uid).find("NetworkPolicy/crowd-workers"), std::string::npos);
  EXPECT_EQ(objects_->obstacle(job_.uid), std::nullopt) << "its workers do not wait for it";
  EXPECT_EQ(Writes(kPolicy), 0);
}

TEST_F(JobObjectsTest, AnEditThatCouldNotBeFollowedSaysWhenToTryAgainAndANewerOneIsTriedAtOnce) {
  EXPECT_TRUE(objects_->Ensure(job_).ok());
  EXPECT_TRUE(objects_->FollowEdit(job_).infinite());
  job_.generation = 3;
  job_.spec.max_unavailable = nullptr;
  api_.Put(kBudgets, 503, {{"kind", "Status"}, {"code", 503}});
  const WallTime again = now_ + Seconds(10);
  EXPECT_EQ(objects_->FollowEdit(job_), again);
  const int asked = api_.Asked(kBudgets);
  Wait(Seconds(4));
  EXPECT_EQ(objects_->FollowEdit(job_), again);
  EXPECT_EQ(api_.Asked(kBudgets), asked) << "not in every turn";

  api_.Put(kBudgets, 404, {{"kind", "Status"}, {"code", 404}});
  job_.generation = 4;
  EXPECT_TRUE(objects_->FollowEdit(job_).infinite());
  job_.generation = 5;
  job_.deleting = true;
  EXPECT_TRUE(objects_->FollowEdit(job_).infinite());
}

TEST_F(JobObjectsTest, WorkersThatTrainAreNotAskedAboutUntilOneIsMissing) {
  objects_->Retry(job_);
  EXPECT_EQ(api_.Asked(kService), 0) << "after a restart of the operator";
  api_.Put(kService, 200, Others());
  EXPECT_FALSE(objects_->Ensure(job_).ok());
  EXPECT_TRUE(objects_->obstacle(job_.uid).has_value());
  api_.Put(kService, 404, {{"kind", "Status"}, {"code", 404}});
  Wait(Seconds(5));
  objects_->Retry(job_);
  EXPECT_EQ(objects_->obstacle(job_.uid), std::nullopt);
}

}  // namespace
}  // namespace crowdsurf::controller
