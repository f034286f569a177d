// What is wrong with a manifest, in the words that its author reads: they are written out here.
#include "operator/core/job/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/manifest/fields.h"
#include "operator/core/job/training_job.h"
#include "tests/unit/operator_core/job/manifest_problems.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ValidateTest, TheManifestOfTheManualIsFaultless) { EXPECT_THAT(Problems(Good()), IsEmpty()); }

TEST(ValidateTest, EveryFieldHasAParentAndItsDefaultPassesItsOwnBounds) {
  for (const manifest::Field& field : manifest::SpecFields()) {
    const size_t dot = field.path.rfind('.');
    if (dot != std::string_view::npos) {
      std::string_view parent = field.path.substr(0, dot);
      if (parent.ends_with("[]")) parent.remove_suffix(2);
      EXPECT_NE(manifest::FindField(parent), nullptr) << field.path;
    }
    if (field.fallback.empty()) continue;
    EXPECT_TRUE(json::accept(field.fallback)) << field.path;
  }
  json filled = Good();
  filled["spec"] = WithDefaults(filled["spec"]);
  EXPECT_THAT(Problems(filled), IsEmpty());
}

TEST(ValidateTest, SaysTheValueAndTheBoundItBreaks) {
  EXPECT_THAT(Problems(With("/averaging/groupSize", 1)),
              ElementsAre("spec.averaging.groupSize: 1 is below 2"));
  EXPECT_THAT(Problems(With("/averaging/groupSize", 65)),
              ElementsAre("spec.averaging.groupSize: 65 is above 64"));
  EXPECT_THAT(Problems(With("/replicas", "8")),
              ElementsAre("spec.replicas: \"8\" is not an integer"));
  EXPECT_THAT(Problems(With("/replicas", 1.5)),
              ElementsAre("spec.replicas: 1.5 is not an integer"));
  EXPECT_THAT(Problems(With("/suspend", "yes")),
              ElementsAre("spec.suspend: yes is not true or false"));
}

TEST(ValidateTest, NamesTheNearestKnownField) {
  EXPECT_THAT(Problems(With("/averaging/groupsize", 4)),
              ElementsAre("spec.averaging.groupsize: unknown field; did you mean groupSize?"));
  EXPECT_THAT(Problems(With("/replcas", 4)),
              ElementsAre("spec.replcas: unknown field; did you mean replicas?"));
  EXPECT_THAT(Problems(With("/averaging/interval/hours", 4)).front(),
              HasSubstr("unknown field; known here: steps, samples, seconds"));
  EXPECT_THAT(Problems(With("/averaging/strategy", "Moshpot")).front(),
              HasSubstr("did you mean Moshpit?"));
}

TEST(ValidateTest, RefusesInWordsWhatIsNotBuiltYet) {
  json ist = Good();
  ist["spec"]["averaging"] = {{"strategy", "IST"}, {"ist", {{"store", "Sharded"}}}};
  EXPECT_THAT(Problems(ist), ElementsAre("spec.averaging.ist.store: Sharded is not built yet; this "
                                         "version has Replicated"));
  ist["spec"]["averaging"]["ist"] = {{"shares", "BySpeed"}};
  EXPECT_THAT(Problems(ist),
              ElementsAre("spec.averaging.ist.shares: BySpeed is not built yet; this "
                          "version has Equal"));
  EXPECT_THAT(Problems(With("/averaging/compression", "Int4")),
              ElementsAre("spec.averaging.compression: Int4 is not built yet; this version has "
                          "None, Float16, BFloat16, Int8"));
  EXPECT_THAT(Problems(With("/averaging/grid", "Paper")),
              ElementsAre("spec.averaging.grid: Paper is not built yet; this version has Fitted"));
  EXPECT_THAT(Problems(With("/scheduling/queueName", "batch")),
              ElementsAre("spec.scheduling.queueName: is not built yet"));
  EXPECT_THAT(Problems(With("/network/podMonitor", true)).front(), HasSubstr("not built yet"));
  EXPECT_THAT(Problems(With("/network/podMonitor", false)), ElementsAre());
  EXPECT_THAT(Problems(With("/tls/caSecretName", "mine")).front(), HasSubstr("not built yet"));
}

TEST(ValidateTest, ReportsEveryViolationAtOnceInOrderOfLines) {
  json document = With("/averaging/groupSize", 1);
  document["spec"]["target"] = json::object();
  document["spec"]["replicas"] = -1;
  document["kind"] = "Job";
  const std::map<std::string, int> lines = {
      {"kind", 2}, {"spec.replicas", 5}, {"spec.averaging.groupSize", 7}, {"spec.target", 9}};
  const std::vector<Violation> found = Validate({document, lines});
  std::vector<int> at;
  at.reserve(found.size());
  for (const Violation& v : found) at.push_back(v.line);
  EXPECT_THAT(at, ElementsAre(2, 5, 5, 7, 9));  // -1 is below 0 and below minReplicas
}

TEST(ValidateTest, AViolationInsideAKnownBlockHasTheBlocksLine) {
  json document = Good();
  document["spec"]["target"].clear();
  const std::map<std::string, int> lines = {{"", 1}, {"spec", 4}};
  EXPECT_EQ(Validate({document, lines}).front().line, 4);
}

TEST(ValidateTest, HoldsTheRulesBetweenFields) {
  EXPECT_THAT(Problems(With("/minReplicas", 9)),
              ElementsAre("spec.replicas: 8 is below minReplicas 9"));
  EXPECT_THAT(Problems(With("/maxReplicas", 7)),
              ElementsAre("spec.replicas: 8 is above maxReplicas 7"));
  EXPECT_THAT(Problems(With("/averaging/interval/seconds", 3)),
              ElementsAre("spec.averaging.interval: has more than one of steps, samples, seconds"));
  EXPECT_THAT(
      Problems(With("/averaging/gossip", json::object())),
      ElementsAre("spec.averaging.gossip: is only for strategy Gossip, this job has Moshpit"));
  EXPECT_THAT(Problems(With("/target/metric", json{{"name", "loss"}})),
              ElementsAre("spec.target.metric: needs below or above"));
  EXPECT_THAT(Problems(With("/checkpoint/volume", "data")),
              ElementsAre("spec.checkpoint.volume: data is not a volume of spec.template"));
  EXPECT_THAT(Problems(With("/failurePolicy/rules", json::array({json::object()}))),
              ElementsAre("spec.failurePolicy.rules[0]: needs onExitCodes or onPodConditions"));
  EXPECT_THAT(Problems(With("/discovery/bootstrapPeers", json::array({"host"}))),
              ElementsAre("spec.discovery.bootstrapPeers[0]: host is not host:port"));
  json wide = With("/averaging/strategy", "AllReduce");
  wide["spec"]["replicas"] = 65;
  EXPECT_THAT(Problems(wide).front(), HasSubstr("65 is above 64"));
}

TEST(ValidateTest, GuardsWhatIsOursInTheTemplate) {
  const std::string container = "/template/spec/containers/0";
  EXPECT_THAT(
      Problems(With(container + "/env", json::parse(R"([{"name": "CROWDSURF_DIR"}])"))).front(),
      HasSubstr("are ours"));
  EXPECT_THAT(Problems(With(container + "/volumeMounts",
                            json::parse(R"([{"name": "v", "mountPath": "/run/crowdsurf/x"}])")))
                  .front(),
              HasSubstr("reserved"));
  // pod-lifecycle 2.1
  EXPECT_THAT(Problems(With("/template/spec/restartPolicy", "OnFailure")), IsEmpty());
  EXPECT_THAT(Problems(With("/template/spec/restartPolicy", "Always")).front(),
              HasSubstr("is not one of Never, OnFailure"));
  EXPECT_THAT(Problems(With("/template/spec/containers/1", json{{"name", "x"}})), IsEmpty());
  json two = With("/template/spec/containers/1", json{{"name", "x"}});
  two["spec"]["template"]["spec"]["containers"][0]["name"] = "y";
  EXPECT_THAT(Problems(two).front(), HasSubstr("one must be named trainer"));
  EXPECT_THAT(Problems(With(container + "/comand", json::array({"x"}))).front(),
              HasSubstr("did you mean command?"));
  EXPECT_THAT(Problems(With(container + "/args", json::array({1}))).front(),
              HasSubstr("is not text; put it in quotes"));
}

// Through them any container of the pod reads the agent's key.
TEST(ValidateTest, NobodyElseMountsTheAgentsVolumesOrSharesItsProcesses) {  // pod-lifecycle 8.2
  for (const std::string list :
       {"/template/spec/containers/0", "/template/spec/initContainers/0"}) {
    json document = With(list + "/name", "trainer");
    document["spec"][json::json_pointer(list + "/volumeMounts")] =
        json::parse(R"([{"name": "crowdsurf-own", "mountPath": "/x"}])");
    EXPECT_THAT(Problems(document), Contains(HasSubstr("volumeMounts[0].name: names that begin")))
        << list;
  }
  for (const std::string field : {"hostPID", "shareProcessNamespace"}) {
    EXPECT_THAT(Problems(With("/template/spec/" + field, true)),
                ElementsAre(HasSubstr("lets the other containers read the agent's key")));
    EXPECT_THAT(Problems(With("/template/spec/" + field, false)), IsEmpty());
  }
}

TEST(ValidateTest, ANumberThatNoIntegerHoldsIsRefusedByItsBound) {
  for (const double number : {1e300, -1e300, 9.3e18}) {
    for (const char* field : {"/maxReplicas", "/minReplicas", "/averaging/groupSize"}) {
      EXPECT_THAT(Problems(With(field, number)), Not(IsEmpty())) << field << number;
    }
  }
}

TEST(ValidateTest, SurvivesDocumentsOfAnyShapeAndBoundsWhatItSays) {
  for (const char* text :
       {"[]", "1", "\"x\"", "{}", "null", R"({"spec": []})", R"({"spec": {"template": 1}})",
        R"({"spec": {"template": {"spec": {"containers": [1, null]}}}})",
        R"({"spec": {"averaging": [], "failurePolicy": {"rules": 3}}})",
        R"({"spec": {"failurePolicy": {"rules": [3, {"onExitCodes": 1}]}}})",
        R"({"metadata": {"name": []}, "spec": {"target": {"metric": 1}}})"}) {
    EXPECT_FALSE(Validate({json::parse(text), {}}).empty()) << text;
  }
  json many = Good();
  for (int i = 0; i < 1000; ++i) many["spec"]["field" + std::to_string(i)] = i;
  EXPECT_EQ(Problems(many).size(), kMaxViolations);
}

TEST(DefaultsTest, FillWhatTheManualPromisesAndOnlyTheChosenStrategysBlock) {
  const json spec = WithDefaults(json::parse(R"({"replicas": 3, "suspend": null})"));
  EXPECT_EQ(spec["maxReplicas"], 3);
  EXPECT_EQ(spec["suspend"], false);
  EXPECT_EQ(spec["averaging"]["strategy"], "Moshpit");
  EXPECT_EQ(spec["averaging"]["groupSize"], 16);
  EXPECT_EQ(spec["averaging"]["interval"], json({{"steps", 50}}));
  EXPECT_EQ(spec["averaging"]["compression"], "Float16");
  EXPECT_FALSE(spec["averaging"].contains("gossip"));
  EXPECT_EQ(spec["runPolicy"]["backoffLimit"], 6);
  EXPECT_EQ(spec["checkpoint"]["intervalSeconds"], 300);
  EXPECT_EQ(spec["disruption"]["graceSeconds"], 25);
  EXPECT_EQ(WithDefaults(spec), spec) << "defaults are idempotent";
  const json gossip = WithDefaults(json::parse(R"({"averaging": {"strategy": "Gossip"}})"));
  EXPECT_EQ(gossip["averaging"]["gossip"]["graph"], "Exponential");
}

TEST(SpecTest, ReadsWhatDefaultsFilled) {
  json document = Good();
  document["spec"]["failurePolicy"]["rules"] =
      json::parse(R"([{"name": "oom", "onExitCodes": {"values": [137]}, "action": "FailJob"}])");
  document["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 7;
  ASSERT_THAT(Problems(document), IsEmpty());
  const TrainingJobSpec spec = SpecFromJson(WithDefaults(document["spec"]));
  EXPECT_EQ(spec.replicas, 8);
  EXPECT_EQ(spec.max_replicas, 8);
  EXPECT_EQ(spec.run.failure_window, Seconds(3600));
  EXPECT_FALSE(spec.run.active_deadline.has_value());
  EXPECT_EQ(spec.disruption.grace, Seconds(7)) << "the template is not silent";
  ASSERT_EQ(spec.failure_rules.size(), 1u);
  EXPECT_EQ(spec.failure_rules[0].action, FailureAction::kFailJob);
  EXPECT_THAT(spec.failure_rules[0].exit_codes, ElementsAre(137));
  EXPECT_TRUE(spec.failure_rules[0].exit_codes_in);
}

}  // namespace
}  // namespace crowdsurf::controller
