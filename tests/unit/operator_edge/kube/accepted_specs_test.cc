// The spec that runs while the newest one cannot: kept, bounded, read again after a restart.
#include "operator/edge/kube/accepted_specs.h"

#include "operator/core/job/json_path.h"
#include "tests/unit/operator_edge/kube/kube_cluster_fixture.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr char kRevisions[] = "/apis/apps/v1/namespaces/team/controllerrevisions";
constexpr char kJob[] = "/apis/crowdsurf.io/v1alpha1/namespaces/team/trainingjobs/crowd";
const std::string kPosts = std::string("POST ") + kRevisions;

json Revision(int number, const char* controller = "job-uid", int replicas = 4) {
  json spec = Job()["spec"];
  spec["replicas"] = replicas;
  json revision = Owned({{"revision", number}, {"data", {{"spec", spec}}}});
  revision["metadata"]["name"] = "revision-" + std::to_string(number);
  revision["metadata"]["uid"] = "uid-of-" + std::to_string(number);
  revision["metadata"]["ownerReferences"][0]["uid"] = controller;
  return revision;
}
std::string PathOf(int number) {
  return std::string(kRevisions) + "/revision-" + std::to_string(number);
}

class AcceptedSpecsTest : public testing::Test {
 protected:
  AcceptedSpecs Started() {
    return AcceptedSpecs(
        client_, [this] { return now_; }, Logger());
  }

  FakeApiServer api_;
  WallTime now_ = WallTime::FromNanoseconds(1'800'000'000'000'000'000);
  KubeClient client_{api_.endpoint(), {}};
  const TrainingJob job_ = ObserveJob(Job())->job;  // of generation 2
};

TEST_F(AcceptedSpecsTest, ASpecIsKeptAsItWasWrittenAndTheTwoNewestStay) {
  api_.Put(kJob, 200, Job());
  api_.Put(kPosts, 201, json::object());
  api_.Put("GET " + std::string(kRevisions), 200,
           List({Revision(2), Revision(1), Revision(0), Revision(-1, "another")}));
  api_.Put("DELETE " + PathOf(0), 200, json::object());
  AcceptedSpecs specs = Started();
  EXPECT_EQ(specs.Keep(job_, 1).generation, 2);
  const json made = api_.Body(kPosts);
  EXPECT_EQ(made["revision"], 2);
  EXPECT_EQ(made["data"]["spec"], Job()["spec"]) << "without what we fill in";
  EXPECT_EQ(made["metadata"]["ownerReferences"][0]["uid"], "job-uid");
  EXPECT_EQ(api_.Body("DELETE " + PathOf(0))["preconditions"]["uid"], "uid-of-0");
  EXPECT_EQ(api_.Asked("DELETE " + PathOf(-1)), 0) << "somebody else's";
  EXPECT_EQ(api_.Asked("DELETE " + PathOf(1)), 0);
  specs.Keep(job_, 1);
  specs.Keep(job_, 2);
  EXPECT_EQ(api_.Asked(kPosts), 1);
}

TEST_F(AcceptedSpecsTest, ARestartedOperatorAsksNothingOfAJobWhoseStatusSaysThatItIsKept) {
  EXPECT_EQ(Started().Keep(job_, 2).generation, 2);
  EXPECT_EQ(api_.Asked(kJob), 0);
}

TEST_F(AcceptedSpecsTest, WhatCouldNotBeKeptIsTriedAgainAWhileLater) {
  AcceptedSpecs specs = Started();
  EXPECT_EQ(specs.Keep(job_, 1).generation, 1);
  api_.Put(kJob, 200, Job());
  api_.Put(kPosts, 201, json::object());
  EXPECT_EQ(specs.Keep(job_, 1).generation, 1) << "not in every turn";
  now_ = now_ + Seconds(10);
  EXPECT_EQ(specs.Keep(job_, 1).generation, 2);
}

// No event comes of it: whoever asks must know when to ask again.
TEST_F(AcceptedSpecsTest, WhatCouldNotBeKeptSaysWhenItIsTriedAgain) {
  AcceptedSpecs specs = Started();
  EXPECT_EQ(specs.Keep(job_, 1).again, now_ + Seconds(10));
  const WallTime first = now_;
  now_ = now_ + Seconds(4);
  EXPECT_EQ(specs.Keep(job_, 1).again, first + Seconds(10));
  api_.Put(kJob, 200, Job());
  api_.Put(kPosts, 201, json::object());
  now_ = now_ + Seconds(6);
  EXPECT_TRUE(specs.Keep(job_, 1).again.infinite());
}

// The cache was behind at the first try: the edit itself is the news that it has caught up.
TEST_F(AcceptedSpecsTest, ANewerSpecIsKeptAtOnceAfterATryThatFailed) {
  json newer = Job();
  newer["metadata"]["generation"] = 3;
  api_.Put(kJob, 200, newer);
  api_.Put(kPosts, 201, json::object());
  AcceptedSpecs specs = Started();
  EXPECT_EQ(specs.Keep(job_, 1).generation, 1);
  EXPECT_EQ(specs.Keep(ObserveJob(newer)->job, 1).generation, 3);
}

TEST_F(AcceptedSpecsTest, AnEditThatIsOnItsWayIsNotKeptAsTheOneBefore) {
  json newer = Job();
  newer["metadata"]["generation"] = 3;
  api_.Put(kJob, 200, newer);
  EXPECT_EQ(Started().Keep(job_, 1).generation, 1);
  EXPECT_EQ(api_.Asked(kPosts), 0);
}

TEST_F(AcceptedSpecsTest, WhatWasMadeBeforeACrashIsOurs) {
  api_.Put(kJob, 200, Job());
  api_.Put(kPosts, 409, {{"kind", "Status"}, {"code", 409}, {"reason", "AlreadyExists"}});
  const std::string name = TextAt(BuildSpecRevision(job_, json::object()), "metadata.name");
  api_.Put(std::string(kRevisions) + "/" + name, 200, Revision(2, "another"));
  AcceptedSpecs specs = Started();
  EXPECT_EQ(specs.Keep(job_, 1).generation, 1) << "of another job";
  api_.Put(std::string(kRevisions) + "/" + name, 200, Revision(2));
  now_ = now_ + Seconds(10);
  EXPECT_EQ(specs.Keep(job_, 1).generation, 2);
}

TEST_F(AcceptedSpecsTest, TheLastOneThatCanBeReadRunsWhoeverKeptIt) {
  json garbled = Revision(9);
  garbled["data"]["spec"] = {{"replicas", "many"}, {"capacity", 3}};
  json mapless = Revision(8);
  mapless["data"] = "text";
  api_.Put(
      kRevisions, 200,
      List({Revision(4), garbled, mapless, Revision(5, "another"), Revision(3, "job-uid", 7)}));
  AcceptedSpecs specs = Started();
  TrainingJob newest = job_;
  newest.generation = 10;
  newest.spec = {};
  newest.deleting = true;
  const auto last = specs.LastOf(newest);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->generation, 4);
  EXPECT_EQ(last->spec.replicas, 4);
  EXPECT_TRUE(last->deleting);
  EXPECT_EQ(last->uid, "job-uid");
  EXPECT_TRUE(specs.LastOf(newest).ok());
  EXPECT_EQ(api_.Asked(kRevisions), 1) << "it does not change while nothing is accepted";
}

TEST_F(AcceptedSpecsTest, NobodysSpecIsNoneAndAServerThatIsAwayIsNoAnswer) {
  AcceptedSpecs specs = Started();
  api_.Put(kRevisions, 200, List(json::array()));
  EXPECT_TRUE(absl::IsNotFound(specs.LastOf(job_).status()));
  api_.Put(kRevisions, 503, {{"kind", "Status"}, {"code", 503}});
  EXPECT_TRUE(absl::IsUnavailable(specs.LastOf(job_).status()));
}

TEST_F(KubeClusterTest, AJobIsLookedAtAgainWhenItsSpecCanBeKept) {
  api_.Put("GET " + std::string(kJob), 503, {{"kind", "Status"}, {"code", 503}});
  const JobSnapshot failed = Observe();
  EXPECT_EQ(failed.accepted_generation, 0);
  EXPECT_EQ(failed.look_again, now_ + Seconds(10));
}

class RefusedEditTest : public KubeClusterTest {
 protected:
  // The next list of jobs has this spec, of generation 3.
  void Edit(const json& patch) {
    json job = Job();
    job["metadata"]["generation"] = 3;
    job["metadata"]["resourceVersion"] = "5";
    job["spec"].merge_patch(patch);
    TearDown();
    api_.Put("/apis/crowdsurf.io/v1alpha1/trainingjobs", 200, List({job}));
    Restart();
  }
  static json Invalid() { return {{"averaging", {{"groupSize", 1}}}}; }
};

TEST_F(RefusedEditTest, AJobGoesOnWithItsLastSpecAndSaysWhichAndWhy) {
  api_.Put(kRevisions, 200, List({Revision(2)}));
  Edit(Invalid());
  JobSnapshot snapshot = Observe();
  EXPECT_EQ(snapshot.job.spec.replicas, 4);
  EXPECT_EQ(snapshot.job.generation, 2);
  EXPECT_EQ(snapshot.pods.size(), 4u);
  ASSERT_TRUE(snapshot.refused.has_value());
  EXPECT_EQ(snapshot.refused->generation, 3);
  EXPECT_NE(snapshot.refused->message.find("spec.averaging.groupSize"), std::string::npos);
  EXPECT_FALSE(snapshot.job.spec.suspend);
}

TEST_F(RefusedEditTest, SuspendActsWhateverElseIsWrong) {
  api_.Put(kRevisions, 200, List({Revision(2)}));
  json edit = Invalid();
  edit["suspend"] = true;
  Edit(edit);
  EXPECT_TRUE(Observe().job.spec.suspend);
}

TEST_F(RefusedEditTest, AJobOfAnothersIsNotEvenRefused) {
  json edit = Invalid();
  edit["managedBy"] = "example.com/other";
  Edit(edit);
  EXPECT_TRUE(absl::IsFailedPrecondition(cluster_->Observe("team/crowd").status()));
  EXPECT_EQ(api_.Asked("PATCH " + std::string(kJob) + "/status"), 0);
}

TEST_F(RefusedEditTest, AJobThatNeverHadAGoodSpecIsRefused) {
  api_.Put(kRevisions, 200, List(json::array()));
  Edit(Invalid());
  const std::string status = "PATCH " + std::string(kJob) + "/status";
  api_.Put(status, 200, Job());
  EXPECT_TRUE(absl::IsInvalidArgument(cluster_->Observe("team/crowd").status()));
  const json written = api_.Body(status)["status"];
  EXPECT_EQ(written["observedGeneration"], 3) << "it was looked at";
  EXPECT_EQ(written["conditions"][0]["type"], "Accepted");
  EXPECT_EQ(written["conditions"][0]["status"], "False");
  EXPECT_EQ(written["conditions"][0]["observedGeneration"], 3);
}

}  // namespace
}  // namespace crowdsurf::controller
