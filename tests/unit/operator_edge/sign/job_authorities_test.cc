// The Secrets that keep jobs' CAs: made, forgotten, swept, and who gets a certificate of them.
#include "operator/edge/sign/job_authorities.h"

#include "base/edge/clock.h"
#include "operator/core/job/rfc3339.h"
#include "tests/support/certificate_request.h"
#include "tests/unit/operator_edge/kube/kube_cluster_fixture.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr char kSecrets[] = "/api/v1/namespaces/system/secrets";
const std::string kReviews = "POST /apis/authentication.k8s.io/v1/tokenreviews";

class JobAuthoritiesTest : public testing::Test {
 protected:
  static std::string Path(const std::string& uid) {
    return std::string(kSecrets) + "/crowdsurf-ca-" + uid;
  }
  // As the API server has it. space: of the job; empty: made by a version that did not say.
  static json Secret(const std::string& name, const std::string& space = "team") {
    json secret = {{"metadata",
                    {{"name", name},
                     {"uid", "uid-of-" + name},
                     {"labels", {{"app.kubernetes.io/managed-by", "crowdsurf"}}}}}};
    if (space.empty()) return secret;
    secret["metadata"]["labels"]["crowdsurf.io/job-namespace"] = space;
    secret["metadata"]["labels"]["crowdsurf.io/job-name"] = "crowd";
    return secret;
  }
  static json JobOf(const std::string& uid) {
    json job = Job();
    job["metadata"]["uid"] = uid;
    return job;
  }
  static std::string JobPath(const std::string& space) {
    return "/apis/crowdsurf.io/v1alpha1/namespaces/" + space + "/trainingjobs/crowd";
  }
  int Deleted(const std::string& uid) { return api_.Asked("DELETE " + Path(uid)); }

  FakeApiServer api_;
  KubeClient client_{api_.endpoint(), {}};
  JobAuthorities authorities_{client_, {.space = "system", .clock = WallNow}};
};

TEST_F(JobAuthoritiesTest, ASecretSaysWhoseItIs) {
  api_.Put(std::string("POST ") + kSecrets, 201, json::object());
  TrainingJob job = ObserveJob(Job())->job;
  (void)authorities_.Trust(job);  // the fake server forgets it at once
  const json made = api_.Body(std::string("POST ") + kSecrets);
  EXPECT_EQ(made["metadata"]["labels"]["crowdsurf.io/job-uid"], "job-uid");
  EXPECT_EQ(made["metadata"]["labels"]["crowdsurf.io/job-namespace"], "team");
  EXPECT_EQ(made["metadata"]["labels"]["crowdsurf.io/job-name"], "crowd");
}

TEST_F(JobAuthoritiesTest, ASecretWhoseJobWentWhileNobodyLookedIsDeletedWithItsUid) {
  json strangers = Secret("crowdsurf-ca-stranger");
  strangers["metadata"]["labels"] = json::object();
  api_.Put(
      kSecrets, 200,
      List({Secret("crowdsurf-ca-alive"), Secret("crowdsurf-ca-gone"),
            Secret("crowdsurf-ca-again", "other"), Secret("crowdsurf-signer-ca", ""), strangers}));
  api_.Put(JobPath("other"), 200, JobOf("of-this-name-now"));
  for (const char* uid : {"gone", "again"}) api_.Put("DELETE " + Path(uid), 200, json::object());
  EXPECT_TRUE(authorities_.Sweep({"alive"}).ok());
  EXPECT_EQ(Deleted("gone"), 1);
  EXPECT_EQ(Deleted("again"), 1) << "its job was made again under its name";
  EXPECT_EQ(api_.Body("DELETE " + Path("gone"))["preconditions"]["uid"],
            "uid-of-crowdsurf-ca-gone");
  EXPECT_EQ(Deleted("alive"), 0);
  EXPECT_EQ(Deleted("stranger"), 0) << "no label of ours";
  EXPECT_EQ(api_.Asked(std::string("DELETE ") + kSecrets + "/crowdsurf-signer-ca"), 0);
}

TEST_F(JobAuthoritiesTest, AJobThatIsYoungerThanWhatIsKnownKeepsItsKey) {
  api_.Put(kSecrets, 200, List({Secret("crowdsurf-ca-young")}));
  api_.Put(JobPath("team"), 200, JobOf("young"));
  EXPECT_TRUE(authorities_.Sweep({}).ok());
  EXPECT_EQ(Deleted("young"), 0);
  api_.Put(JobPath("team"), 503, {{"kind", "Status"}, {"code", 503}});
  EXPECT_FALSE(authorities_.Sweep({}).ok());
  EXPECT_EQ(Deleted("young"), 0) << "nobody says that it is gone";
}

TEST_F(JobAuthoritiesTest, ASecretThatDoesNotSayWhoseItIsGoesWhenEveryJobOfItsTimeIsKnown) {
  json older = Secret("crowdsurf-ca-older", "");
  older["metadata"]["creationTimestamp"] = FormatInstant(WallNow() - Seconds(60));
  api_.Put(kSecrets, 200, List({older}));
  api_.Put("DELETE " + Path("older"), 200, json::object());
  EXPECT_TRUE(authorities_.Sweep({}).ok());
  EXPECT_EQ(Deleted("older"), 0);
  older["metadata"]["creationTimestamp"] = FormatInstant(WallNow() - Seconds(4000));
  api_.Put(kSecrets, 200, List({older}));
  EXPECT_TRUE(authorities_.Sweep({}).ok());
  EXPECT_EQ(Deleted("older"), 1);
}

TEST_F(JobAuthoritiesTest, AnOperatorOfOneNamespaceLeavesTheOthersAlone) {
  JobAuthorities one(client_, {.space = "system", .watched = "team", .clock = WallNow});
  json older = Secret("crowdsurf-ca-older", "");
  older["metadata"]["creationTimestamp"] = FormatInstant(WallNow() - Seconds(4000));
  api_.Put(kSecrets, 200,
           List({Secret("crowdsurf-ca-gone"), Secret("crowdsurf-ca-other", "elsewhere"), older}));
  api_.Put("DELETE " + Path("gone"), 200, json::object());
  EXPECT_TRUE(one.Sweep({}).ok());
  EXPECT_EQ(Deleted("gone"), 1);
  EXPECT_EQ(Deleted("other"), 0);
  EXPECT_EQ(Deleted("older"), 0) << "it may be anywhere's";
}

TEST_F(JobAuthoritiesTest, AKeyThatCouldNotBeDeletedIsSaidSoThatItIsTriedAgain) {
  api_.Put(Path("gone"), 200, Secret("crowdsurf-ca-gone"));
  api_.Put("DELETE " + Path("gone"), 503, {{"kind", "Status"}, {"code", 503}});
  EXPECT_FALSE(authorities_.Forget("gone").ok());
  api_.Put("DELETE " + Path("gone"), 200, json::object());
  EXPECT_TRUE(authorities_.Forget("gone").ok());
  EXPECT_TRUE(authorities_.Forget("never-there").ok());
  api_.Put(Path("unread"), 200, Secret("crowdsurf-ca-unread"));
  api_.Put(JobPath("team"), 200, JobOf("unread"));
  EXPECT_TRUE(authorities_.Forget("unread").ok());
  EXPECT_EQ(Deleted("unread"), 0) << "its job is there, and only its caller cannot see it";
  json strangers = Secret("crowdsurf-ca-stranger");
  strangers["metadata"]["labels"] = json::object();
  api_.Put(Path("stranger"), 200, strangers);
  EXPECT_TRUE(authorities_.Forget("stranger").ok());
  EXPECT_EQ(Deleted("stranger"), 0) << "somebody else's Secret of that name";
}

// The API server takes any text as an owner's name; as a path, the rest of this one asks for a job
// that is there, and in a certificate it would be a name more.
TEST_F(JobAuthoritiesTest, AnOwnersNameThatIsNoNameGetsNoCertificate) {
  api_.Put(kReviews, 201,
           {{"status",
             {{"authenticated", true},
              {"audiences", {"crowdsurf"}},
              {"user",
               {{"username", "system:serviceaccount:team:default"},
                {"extra",
                 {{"authentication.kubernetes.io/pod-name", {"crowd-0-1"}},
                  {"authentication.kubernetes.io/pod-uid", {"uid-0"}}}}}}}}});
  const auto grant = [&](const char* owner) {
    json pod = Pod(0);
    pod["metadata"]["ownerReferences"][0]["name"] = owner;
    api_.Put("/api/v1/namespaces/team/pods/crowd-0-1", 200, pod);
    return authorities_.Grant("token", "csr").status();
  };
  const std::string jobs = "/apis/crowdsurf.io/v1alpha1/namespaces/team/trainingjobs/";
  api_.Put(jobs + "crowd", 200, Job());
  EXPECT_TRUE(absl::IsNotFound(grant("crowd"))) << "it passes, and its CA is not there";
  const Status refused = grant("crowd?x=,URI:crowdsurf://other/worker");
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_EQ(api_.Asked("GET " + jobs + "crowd"), 1) << "it was asked for as a path";
}

// A refusal is final for a worker, so "nobody could say" must not become one.
TEST_F(JobAuthoritiesTest, AnApiServerThatIsAwayRefusesNobody) {
  const json claim = {{"user",
                       {{"username", "system:serviceaccount:team:default"},
                        {"extra",
                         {{"authentication.kubernetes.io/pod-name", {"crowd-0-1"}},
                          {"authentication.kubernetes.io/pod-uid", {"uid-0"}}}}}},
                      {"audiences", {"crowdsurf"}},
                      {"authenticated", true}};
  api_.Put(kReviews, 201, {{"status", claim}});
  const std::string pod = "/api/v1/namespaces/team/pods/crowd-0-1";
  const json away = {{"kind", "Status"}, {"code", 503}};
  const auto grant = [&] { return authorities_.Grant("token", "csr").status(); };
  api_.Put(pod, 503, away);
  EXPECT_TRUE(absl::IsUnavailable(grant())) << "of the pod: " << grant();
  api_.Put(pod, 200, Pod(0));
  api_.Put(JobPath("team"), 503, away);
  EXPECT_TRUE(absl::IsUnavailable(grant())) << "of the job: " << grant();
  api_.Put(JobPath("team"), 404, {{"kind", "Status"}, {"code", 404}});
  EXPECT_TRUE(absl::IsPermissionDenied(grant())) << "the job is gone: " << grant();
}

TEST(CertificateNamesTest, ANameWithACommaIsNoSecondName) {
  const auto authority = CertificateAuthority::Create("charlm", WallNow());
  ASSERT_TRUE(authority.ok());
  for (const char* worker : {"a,URI:crowdsurf://other/b", "a/b", "a b", "", "A", "a\nb"}) {
    const auto chain = authority->SignAgent(NewCertificateRequest(), worker, WallNow());
    EXPECT_TRUE(absl::IsInvalidArgument(chain.status())) << worker;
  }
  EXPECT_TRUE(authority->SignAgent(NewCertificateRequest(), "charlm-0-1", WallNow()).ok());
  const char* job = "charlm,URI:crowdsurf://other";
  EXPECT_TRUE(absl::IsInvalidArgument(CertificateAuthority::Create(job, WallNow()).status()));
  const std::string key = *authority->KeyPem();
  EXPECT_TRUE(
      absl::IsInvalidArgument(CertificateAuthority::Load(job, authority->pem(), key).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(authority->MakeServer({"host,DNS:other"}, WallNow()).status()));
  EXPECT_TRUE(authority->MakeServer({"::", "127.0.0.1", "a.ns.svc"}, WallNow()).ok());
}

}  // namespace
}  // namespace crowdsurf::controller
