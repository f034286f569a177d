// Events, annotations and deletions at the API server: their bounds and preconditions.
#include "tests/unit/operator_edge/kube/kube_cluster_fixture.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr char kEvents[] = "POST /api/v1/namespaces/team/events";
constexpr char kPod[] = "/api/v1/namespaces/team/pods/crowd-0-1";

TEST_F(KubeClusterTest, AJobSaysTwentyFiveThingsAtOnceAndOneMoreEveryTwelveSeconds) {
  api_.Put(kEvents, 201, json::object());
  const TrainingJob job = Observe().job;
  const auto dropped = [&] { return metrics_.Value("crowdsurf_operator_events_dropped_total"); };
  const std::vector<Event> many(30, Event{EventType::kWarning, reason::kNotice, "news"});
  cluster_->RecordAll(job, many);
  Answered();
  EXPECT_EQ(api_.Asked(kEvents), 25);
  EXPECT_EQ(dropped(), 5);
  now_ = now_ + Milliseconds(11'999);
  cluster_->RecordAll(job, many);
  Answered();
  EXPECT_EQ(api_.Asked(kEvents), 25);
  now_ = now_ + Milliseconds(1);
  cluster_->RecordAll(job, many);
  Answered();
  EXPECT_EQ(api_.Asked(kEvents), 26);
  now_ = now_ + Seconds(3600);
  cluster_->RecordAll(job, many);
  Answered();
  EXPECT_EQ(api_.Asked(kEvents), 51) << "no more than the burst, however quiet it was";
}

TEST_F(KubeClusterTest, HowAJobEndedIsSaidAlsoWhenItsBudgetIsUsedUp) {
  api_.Put(kEvents, 201, json::object());
  const TrainingJob job = Observe().job;
  cluster_->RecordAll(job, std::vector<Event>(30, {EventType::kNormal, reason::kNodeGone, "n"}));
  Answered();
  ASSERT_EQ(api_.Asked(kEvents), 25);
  cluster_->Record(job, {EventType::kWarning, reason::kBackoffLimitExceeded, "7 failures", true});
  Answered();
  EXPECT_EQ(api_.Body(kEvents)["reason"], "BackoffLimitExceeded");
}

TEST_F(KubeClusterTest, AnEventNamesItsJobAndFitsIntoTheServersBounds) {
  api_.Put(kEvents, 201, json::object());
  cluster_->Record(Observe().job, {EventType::kNormal, reason::kResumed, std::string(5000, 'x')});
  Answered();
  const json event = api_.Body(kEvents);
  EXPECT_EQ(event["type"], "Normal");
  EXPECT_EQ(event["reason"], "Resumed");
  EXPECT_EQ(event["message"].get<std::string>().size(), 1024u);
  EXPECT_EQ(event["involvedObject"]["uid"], "job-uid");
  EXPECT_EQ(event["firstTimestamp"], "2027-01-15T08:00:00Z");
  EXPECT_EQ(event["count"], 1);
}

TEST_F(KubeClusterTest, AQuotaThatIsUsedUpIsNoMissingRight) {  // both are 403
  PutStartObjects();
  CreatePod create;
  create.name = "crowd-4-1";
  const auto refused = [&](const char* why) {
    api_.Put("POST " + kPodsPath, 403,
             {{"kind", "Status"}, {"code", 403}, {"reason", "Forbidden"}, {"message", why}});
    return cluster_->Create(Observe().job, create);
  };
  EXPECT_TRUE(absl::IsResourceExhausted(
      refused("pods \"crowd-4-1\" is forbidden: exceeded quota: team, requested: pods=1")));
  EXPECT_TRUE(absl::IsPermissionDenied(
      refused("pods is forbidden: User \"operator\" cannot create resource \"pods\"")));
}

TEST_F(KubeClusterTest, AnAnnotationIsOfThatPodAloneAndSaysWhenItWasTold) {
  api_.Put(kPod, 200, Pod(0));
  AnnotatePod note{"crowd-0-1", "uid-0", kConfigAnnotation, "{}", reason::kConfig};
  ASSERT_TRUE(cluster_->Annotate(note).ok());
  const std::string patch = "PATCH " + std::string(kPod);
  json metadata = api_.Body(patch)["metadata"];
  EXPECT_EQ(metadata["uid"], "uid-0") << "a pod of that name that was made anew is refused";
  EXPECT_EQ(metadata["annotations"]["crowdsurf.io/config"], "{}");
  EXPECT_EQ(metadata["annotations"]["crowdsurf.io/notified-at"], "2027-01-15T08:00:00Z");
  note = {"crowd-0-1", "uid-0", kNotifiedAtAnnotation, "", reason::kNotifiedAgain};
  ASSERT_TRUE(cluster_->Annotate(note).ok());
  metadata = api_.Body(patch)["metadata"];
  EXPECT_EQ(metadata["annotations"], (json{{"crowdsurf.io/notified-at", nullptr}})) << "withdrawn";
  note.uid = "uid-of-none";
  EXPECT_TRUE(cluster_->Annotate(note).ok()) << "who has gone needs to be told nothing";
  EXPECT_EQ(api_.Asked(patch), 2);
}

TEST_F(KubeClusterTest, ADeletionIsOfThatPodAloneAndHasItsGrace) {
  const std::string asked = "DELETE " + std::string(kPod);
  api_.Put(asked, 200, json::object());
  ASSERT_TRUE(cluster_->Delete({"crowd-0-1", "uid-0", Seconds(7), reason::kEnded}).ok());
  EXPECT_EQ(api_.Body(asked),
            (json{{"preconditions", {{"uid", "uid-0"}}}, {"gracePeriodSeconds", 7}}));
  ASSERT_TRUE(cluster_->Delete({"crowd-0-1", "uid-0", std::nullopt, reason::kEnded}).ok());
  EXPECT_EQ(api_.Body(asked), (json{{"preconditions", {{"uid", "uid-0"}}}})) << "the pod's own";
  api_.Put(asked, 404, json::object());
  EXPECT_TRUE(cluster_->Delete({"crowd-0-1", "uid-0", std::nullopt, reason::kEnded}).ok());
  api_.Put(asked, 500, json::object());
  EXPECT_FALSE(cluster_->Delete({"crowd-0-1", "uid-0", std::nullopt, reason::kEnded}).ok());
  EXPECT_TRUE(cluster_->Delete({"x", "uid-of-none", std::nullopt, reason::kEnded}).ok());
}

}  // namespace
}  // namespace crowdsurf::controller
