// The template against the schema that the CRD carries: what `kubectl apply` refuses is refused
// without an API server, too. Expected words are written by hand.
#include "operator/core/job/template_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/operator_core/job/manifest_problems.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kContainer[] = "/template/spec/containers/0";

std::vector<std::string> OfContainer(const std::string& field, const char* value) {
  return Problems(With(kContainer + ("/" + field), json::parse(value)));
}

TEST(TemplateSchemaTest, AListGivenAsAMappingIsRefused) {
  const std::string path = "spec.template.spec.";
  EXPECT_THAT(OfContainer("env", R"({"LR": "0.1"})"),
              ElementsAre(path + "containers[0].env: a mapping is not a list"));
  EXPECT_THAT(OfContainer("volumeMounts", R"({"name": "data", "mountPath": "/data"})"),
              ElementsAre(path + "containers[0].volumeMounts: a mapping is not a list"));
  EXPECT_THAT(OfContainer("envFrom", "{}"),
              ElementsAre(path + "containers[0].envFrom: a mapping is not a list"));
  for (const std::string list : {"volumes", "initContainers", "containers", "tolerations"}) {
    EXPECT_THAT(Problems(With("/template/spec/" + list, json{{"name", "x"}})),
                ElementsAre(path + list + ": a mapping is not a list"));
  }
}

TEST(TemplateSchemaTest, AMountNamesAVolumeThatIsThere) {
  json document =
      With("/template/spec/volumes", json::parse(R"([{"name": "data", "emptyDir": {}}])"));
  auto& container = document["spec"]["template"]["spec"]["containers"][0];
  container["volumeMounts"] = json::parse(R"([{"name": "dat", "mountPath": "/data"}])");
  EXPECT_THAT(Problems(document),
              ElementsAre("spec.template.spec.containers[0].volumeMounts[0].name: dat is not a "
                          "volume of spec.template"));
  container["volumeMounts"][0]["name"] = "data";
  EXPECT_THAT(Problems(document), IsEmpty());
}

TEST(TemplateSchemaTest, TypesAndRequiredFieldsAreThoseOfAPod) {
  EXPECT_THAT(
      OfContainer("env", R"([{"name": "A", "value": 1}, {"value": "x"}, 7])"),
      ElementsAre(HasSubstr("env[0].value: 1 is not text; put it in quotes"),
                  HasSubstr("env[1].name: is missing"), HasSubstr("env[2]: 7 is not a mapping")));
  EXPECT_THAT(OfContainer("tty", R"("yes")"), ElementsAre(HasSubstr("yes is not true or false")));
  EXPECT_THAT(OfContainer("ports", R"([{"containerPort": 3000000000}])"),
              ElementsAre(HasSubstr("3000000000 is not a number of 32 bits")));
  EXPECT_THAT(OfContainer("imagePullPolicy", R"("Sometimes")"),
              ElementsAre(HasSubstr("Sometimes is not one of Always, IfNotPresent, Never")));
  EXPECT_THAT(OfContainer("resources", R"({"limits": {"cpu": 0.5, "memory": "1Gi", "pods": 3}})"),
              ElementsAre(HasSubstr("limits.cpu: 0.5 is neither a whole number nor text")));
  EXPECT_THAT(OfContainer("command", R"(["train", "--lr", 0.1])"),
              ElementsAre(HasSubstr("command[2]: 0.1 is not text; put it in quotes")));
  EXPECT_THAT(
      OfContainer("env", R"([{"name": "A"}, {"name": "A"}])"),
      ElementsAre(HasSubstr("env[1]: stands there twice: another entry has the same name")));
}

TEST(TemplateSchemaTest, AnUnknownFieldIsRefusedWhereTheApiServerRefusesIt) {
  EXPECT_THAT(
      OfContainer("volumeMount", "[]"),
      ElementsAre("spec.template.spec.containers[0].volumeMount: unknown field; did you mean "
                  "volumeMounts?"));
  EXPECT_THAT(OfContainer("fieldOfTomorrow", "1"), ElementsAre(HasSubstr("unknown field")));
  EXPECT_THAT(Problems(With("/template/spec/fieldOfTomorrow", 1)), IsEmpty())
      << "a newer Kubernetes may have it";
  EXPECT_THAT(Problems(With("/template/spec/tolerration", json::array())),
              ElementsAre(HasSubstr("did you mean tolerations?")));
  EXPECT_THAT(OfContainer("securityContext", "null"), IsEmpty()) << "null is absent";
}

TEST(TemplateSchemaTest, AKeyOfTheDocumentCannotForgeWhatIsPrinted) {
  const auto problems = OfContainer("\x1b[2J\x1b]0;owned\x07\nok", "1");
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].find_first_of("\x1b\x07\n\r"), std::string::npos);
}

}  // namespace
}  // namespace crowdsurf::controller
