// What becomes of a pod template in local mode: one test a row of the table in docs/local-mode.md.
//
// Expected words and folders are written out here from that page, not computed by the code.
#include "operator/core/job/local_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

const LocalPlaces kPlaces = {"/dev/shm/run/w", "/state/workers/w/agent", "/state/workers/w/volumes",
                             "/state/volumes", "/state/checkpoint",      "/opt/crowdsurf/bin"};

// A manifest with one container, `more` added to it, and `pod` to the pod's spec.
Manifest With(const json& more = json::object(), const json& pod = json::object()) {
  json container = {{"name", "trainer"}, {"image", "i"}, {"command", {"train"}}};
  container.update(more);
  json spec = {{"containers", json::array({container})}};
  spec.update(pod);
  return {{{"apiVersion", "crowdsurf.io/v1alpha1"},
           {"kind", "TrainingJob"},
           {"metadata", {{"name", "charlm"}}},
           {"spec", {{"target", {{"samples", 10}}}, {"template", {{"spec", spec}}}}}},
          {}};
}

std::vector<std::string> Problems(const Manifest& manifest) {
  EXPECT_THAT(Validate(manifest), IsEmpty()) << "a cluster takes it";
  std::vector<std::string> out;
  for (const Violation& violation : CheckLocal(manifest)) out.push_back(violation.Text());
  return out;
}

TrainingJob Job(const Manifest& manifest) {
  TrainingJob job;
  job.name = "charlm";
  job.spec = SpecFromJson(WithDefaults(manifest.document["spec"]));
  return job;
}

LocalCommand Command(const Manifest& manifest, const std::vector<std::string>& inherited = {}) {
  return TrainerCommand(Job(manifest), "charlm-3-2", kPlaces, inherited);
}

// A mount of the volume `name` at `path`.
json Mount(const char* name, const char* path) { return {{"name", name}, {"mountPath", path}}; }

TEST(LocalRulesTest, ThereIsNoImageToSayWhatToRun) {
  EXPECT_THAT(Problems(With()), IsEmpty());
  Manifest silent = With();
  silent.document["spec"]["template"]["spec"]["containers"][0].erase("command");
  EXPECT_THAT(Problems(silent),
              ElementsAre("spec.template.spec.containers[0].command: is missing; local mode has no "
                          "image that would say what to run"));
  EXPECT_THAT(Command(With({{"args", {"--seed", "7"}}})).argv, ElementsAre("train", "--seed", "7"));
}

TEST(LocalRulesTest, ValuesFromTheClusterAreRefusedEachByItsPath) {
  const json env = json::parse(R"([{"name": "A", "value": "1"},
      {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
      {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])");
  const json from = json::parse(R"([{"configMapRef": {"name": "m"}}])");
  EXPECT_THAT(
      Problems(With({{"env", env}, {"envFrom", from}})),
      ElementsAre(
          "spec.template.spec.containers[0].env[1].valueFrom: local mode has plain values only",
          "spec.template.spec.containers[0].env[2].valueFrom: local mode has plain values only",
          "spec.template.spec.containers[0].envFrom: local mode has plain values only"));
}

TEST(LocalRulesTest, VolumesOfOtherKindsAreRefusedByTheirPlace) {
  const json volumes = json::parse(R"([{"name": "a", "emptyDir": {}},
      {"name": "b", "hostPath": {"path": "/data"}},
      {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
      {"name": "d", "configMap": {"name": "d"}}])");
  EXPECT_THAT(Problems(With(json::object(), {{"volumes", volumes}})),
              ElementsAre("spec.template.spec.volumes[3]: local mode has emptyDir, hostPath, "
                          "persistentVolumeClaim only"));
}

TEST(LocalRulesTest, VariablesExpandAsKubernetesDoesIt) {
  const std::map<std::string, std::string> values = {{"A", "one"}, {"B", "$(A)"}};
  EXPECT_EQ(ExpandVariables("x$(A)y$(A)", values), "xoneyone");
  EXPECT_EQ(ExpandVariables("$(B)", values), "$(A)") << "a value is not expanded again";
  EXPECT_EQ(ExpandVariables("$$(A) $$", values), "$(A) $");
  EXPECT_EQ(ExpandVariables("$(NONE) $(A $A ${A} $", values), "$(NONE) $(A $A ${A} $");
}

TEST(LocalRulesTest, WordsAndValuesSeeTheVariablesDeclaredBeforeThem) {
  const json env = json::parse(R"env([{"name": "FIRST", "value": "$(CROWDSURF_WORKER)/$(LATER)"},
      {"name": "LATER", "value": "$(FIRST)!"}])env");
  const LocalCommand command = Command(
      With({{"env", env}, {"command", {"$(FIRST)", "$(HOME)"}}, {"args", {"--out=$(LATER)"}}}),
      {"HOME=/home"});
  EXPECT_THAT(command.argv,
              ElementsAre("charlm-3-2/$(LATER)", "$(HOME)", "--out=charlm-3-2/$(LATER)!"))
      << "what is inherited is not declared, as in a pod";
}

TEST(LocalRulesTest, TheEnvironmentIsOursTheTemplatesAndTheCallersButItsCrowdsurf) {
  const json env = json::parse(R"([{"name": "LANG", "value": "C"}])");
  EXPECT_THAT(Command(With({{"env", env}}), {"LANG=de", "TERM=vt100", "CROWDSURF_JOB=another",
                                             "CROWDSURF_RUN=r", "PATH=/bin"})
                  .environment,
              UnorderedElementsAre("CROWDSURF_DIR=/dev/shm/run/w", "CROWDSURF_JOB=charlm",
                                   "CROWDSURF_WORKER=charlm-3-2", "LANG=C", "TERM=vt100",
                                   "PATH=/opt/crowdsurf/bin:/bin"));
  EXPECT_THAT(Command(With()).environment,
              Contains("PATH=/opt/crowdsurf/bin:/usr/local/bin:/usr/bin:/bin"));
}

TEST(LocalRulesTest, AFolderStandsInForEveryVolume) {
  json manifest = With({{"volumeMounts",
                         {Mount("scratch", "/scratch/"), Mount("host", "/data"),
                          Mount("claim", "/data/claim"), Mount("keep", "/ckpt")}},
                        {"args",
                         {"/scratch/a", "--in=/data/x", "/data/claim/y", "--out=/ckpt", "/database",
                          "see /data"}},
                        {"env", {{{"name", "DATA"}, {"value", "/data"}}}}},
                       {{"volumes", json::parse(R"([{"name": "scratch", "emptyDir": {}},
                            {"name": "host", "hostPath": {"path": "/srv/texts"}},
                            {"name": "claim", "persistentVolumeClaim": {"claimName": "other"}},
                            {"name": "keep", "persistentVolumeClaim": {"claimName": "k"}}])")}})
                      .document;
  manifest["spec"]["checkpoint"] = {{"volume", "keep"}};
  ASSERT_THAT(Problems({manifest, {}}), IsEmpty());
  const LocalCommand command = Command({manifest, {}});
  EXPECT_THAT(command.argv, ElementsAre("train", "/state/workers/w/volumes/scratch/a",
                                        "--in=/srv/texts/x", "/state/volumes/claim/y",
                                        "--out=/state/checkpoint", "/database", "see /data"))
      << "the longest mount path wins; a path that only begins with the same letters is none";
  EXPECT_THAT(command.environment, Contains("DATA=/srv/texts"));
  EXPECT_THAT(command.folders,
              UnorderedElementsAre("/state/workers/w/volumes/scratch", "/srv/texts",
                                   "/state/volumes/claim", "/state/checkpoint"));
}

TEST(LocalRulesTest, ASubPathIsAFolderBelow) {
  json mount = Mount("scratch", "/mine");
  mount["subPath"] = "part";
  const LocalCommand command =
      Command(With({{"volumeMounts", {mount}}, {"args", {"/mine/x"}}},
                   {{"volumes", json::parse(R"([{"name": "scratch", "emptyDir": {}}])")}}));
  EXPECT_EQ(command.argv.back(), "/state/workers/w/volumes/scratch/part/x");
  EXPECT_THAT(command.folders, ElementsAre("/state/workers/w/volumes/scratch/part"));
}

TEST(LocalRulesTest, TheWorkingDirectoryIsTheTemplatesOrOurs) {
  EXPECT_EQ(Command(With()).directory, "") << "where crowdsurf was started";
  EXPECT_EQ(Command(With({{"workingDir", "/srv"}})).directory, "/srv");
  EXPECT_EQ(Command(With({{"workingDir", "/data/run"}, {"volumeMounts", {Mount("d", "/data")}}},
                         {{"volumes", json::parse(R"([{"name": "d", "hostPath":
                              {"path": "/srv/texts"}}])")}}))
                .directory,
            "/srv/texts/run");
}

TEST(LocalRulesTest, OneLineSaysWhatIsNotDoneHere) {
  EXPECT_THAT(LocalRemarks(Job(With()).spec), IsEmpty());
  const json limits = {{"limits", {{"cpu", "2"}}}};
  EXPECT_THAT(LocalRemarks(Job(With({{"resources", limits}})).spec),
              ElementsAre("resources are not enforced: every worker shares this machine"));
}

TEST(LocalRulesTest, FieldsWithoutEffectAreNamedOnce) {
  json mount = Mount("d", "/data");
  mount["readOnly"] = true;
  json quiet = Mount("d", "/more");
  quiet["readOnly"] = false;
  const Manifest manifest =
      With({{"volumeMounts", {mount, quiet}},
            {"livenessProbe", {{"exec", {{"command", {"true"}}}}}},
            {"tty", false}},
           {{"nodeSelector", {{"a", "b"}}},
            {"restartPolicy", "OnFailure"},
            {"volumes", json::parse(R"([{"name": "d", "emptyDir": {"sizeLimit": "1Gi"}}])")}});
  ASSERT_THAT(Problems(manifest), IsEmpty());
  EXPECT_THAT(LocalRemarks(Job(manifest).spec),
              ElementsAre("no effect on one machine: nodeSelector, restartPolicy, "
                          "trainer.livenessProbe, mount /data.readOnly, volume d.sizeLimit"));
}

TEST(LocalRulesTest, MountsThatCannotBeAsWrittenAreRefused) {
  const json volumes = json::parse(R"([{"name": "home", "hostPath": {"path": "~/data"}},
      {"name": "here", "hostPath": {"path": "data"}}, {"name": "e", "emptyDir": {}}])");
  json by_name = Mount("e", "/a");
  by_name["subPathExpr"] = "$(POD_NAME)";
  json out = Mount("e", "/b");
  out["subPath"] = "x/../../y";
  EXPECT_THAT(
      Problems(With({{"volumeMounts", {by_name, out}}}, {{"volumes", volumes}})),
      ElementsAre("spec.template.spec.containers[0].volumeMounts[0].subPathExpr: local mode "
                  "has subPath only",
                  "spec.template.spec.containers[0].volumeMounts[1].subPath: leads out of "
                  "the volume",
                  "spec.template.spec.volumes[0].hostPath.path: ~/data does not begin with /",
                  "spec.template.spec.volumes[1].hostPath.path: data does not begin with /"));
}

TEST(LocalRulesTest, OtherContainersDoNotRunAndOneLineSaysSo) {
  Manifest manifest = With(
      json::object(), {{"initContainers", json::parse(R"([{"name": "fetch", "image": "f"}])")}});
  manifest.document["spec"]["template"]["spec"]["containers"].insert(
      manifest.document["spec"]["template"]["spec"]["containers"].begin(),
      json({{"name", "logs"}, {"image", "l"}}));
  ASSERT_THAT(Problems(manifest), IsEmpty()) << "the trainer alone needs a command";
  EXPECT_THAT(
      LocalRemarks(Job(manifest).spec),
      ElementsAre("of the template's containers only the trainer runs here, not: fetch, logs"));
  EXPECT_THAT(Command(manifest).argv, ElementsAre("train"));
}

TEST(LocalRulesTest, AViolationNamesTheTrainersOwnPlace) {
  Manifest manifest = With({{"envFrom", json::parse(R"([{"secretRef": {"name": "s"}}])")}});
  auto& containers = manifest.document["spec"]["template"]["spec"]["containers"];
  containers.insert(containers.begin(), json({{"name", "logs"}, {"image", "l"}}));
  EXPECT_THAT(Problems(manifest),
              ElementsAre(StartsWith("spec.template.spec.containers[1].envFrom")));
}

}  // namespace
}  // namespace crowdsurf::controller
