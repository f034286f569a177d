// The CRD that is shipped is the one that the table of fields makes.
#include "operator/core/job/crd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>

#include "base/manifest/fields.h"

namespace crowdsurf::controller {
namespace {

using Json = nlohmann::json;

std::string Read(const char* path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

Json Made() { return Crd(Json::parse(Read("deploy/crd/pod-template-schema.json"))); }

// pod-lifecycle 7.1
TEST(CrdTest, TheShippedFileIsWhatTheTypesSay) {
  EXPECT_EQ(Read("deploy/crd/trainingjobs.yaml"), Made().dump() + "\n")
      << "make it anew: build/release/bin/crowdsurf-crd deploy/crd/pod-template-schema.json > "
         "deploy/crd/trainingjobs.yaml";
  // helm warns of links, and a packaged chart needs the file.
  EXPECT_EQ(Read("helm/crowdsurf/files/trainingjobs.yaml"), Read("deploy/crd/trainingjobs.yaml"))
      << "copy it: cp deploy/crd/trainingjobs.yaml helm/crowdsurf/files";
}

// kubectl apply stores the object in an annotation of at most 262,144 bytes; ours is a promise of
// 100 KB.
TEST(CrdTest, PlainKubectlApplyHasRoomForIt) { EXPECT_LT(Made().dump().size(), 100'000u); }

TEST(CrdTest, EveryFieldOfTheTableIsInTheSchema) {
  const Json spec =
      Made()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
  for (const manifest::Field& field : manifest::SpecFields()) {
    std::string pointer;
    std::stringstream parts{std::string(field.path)};
    for (std::string part; std::getline(parts, part, '.');) {
      const bool list = part.ends_with("[]");
      pointer += "/properties/" + (list ? part.substr(0, part.size() - 2) + "/items" : part);
    }
    const Json::json_pointer at(pointer);
    ASSERT_TRUE(spec.contains(at)) << field.path;
    if (field.fallback.empty() || field.path.find("[]") != std::string_view::npos) continue;
    EXPECT_EQ(spec[at]["default"], Json::parse(field.fallback)) << field.path;
  }
}

// argoproj/argo-cd#11074: a default that the server fills into an item of a list is a difference
// for ever. kubernetes/kubernetes#85332: one of them was the name of a secret.
void ExpectNoDefaultInItems(const Json& schema, const std::string& path, bool in_items) {
  const bool filled = schema.is_object() && schema.contains("default");
  EXPECT_FALSE(in_items && filled && !schema["default"].is_object()) << path;
  for (const auto& [key, value] : schema.items()) {
    if (value.is_structured())
      ExpectNoDefaultInItems(value, path + "/" + key, in_items || key == "items");
  }
}

TEST(CrdTest, NothingIsFilledIntoTheItemsOfLists) {
  const Json root = Made()["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
  ExpectNoDefaultInItems(root, "", false);
}

// A structural schema must require each key of a list-map, or have a default for it.
void ExpectRequiredKeys(const Json& schema, const std::string& path) {
  if (schema.is_object() && schema.contains("x-kubernetes-list-map-keys") &&
      schema["x-kubernetes-list-map-keys"].is_array()) {
    const Json required = schema["items"].value("required", Json::array());
    for (const Json& key : schema["x-kubernetes-list-map-keys"]) {
      EXPECT_NE(std::find(required.begin(), required.end(), key), required.end()) << path << key;
    }
  }
  if (!schema.is_structured()) return;
  for (const auto& [key, value] : schema.items()) ExpectRequiredKeys(value, path + "/" + key);
}

TEST(CrdTest, EveryKeyOfAListIsRequiredInItsItems) {
  const Json root = Made()["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
  ExpectRequiredKeys(root["properties"]["spec"], "");
}

TEST(CrdTest, ANameThatNoServiceCanHaveIsRefusedAtOnce) {
  const Json rules =
      Made()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"];
  const auto rule = std::find_if(rules.begin(), rules.end(), [](const Json& one) {
    return one["rule"].get<std::string>().starts_with("self.metadata.name.matches('");
  });
  ASSERT_NE(rule, rules.end());
  const std::string text = (*rule)["rule"];
  const size_t from = text.find('\'') + 1;
  const std::regex pattern(text.substr(from, text.rfind('\'') - from));
  for (const char* good : {"a", "job", "a-1", "charlm-2"})
    EXPECT_TRUE(std::regex_match(good, pattern));
  for (const char* bad : {"1job", "my.job", "job-", "Job", "-job"}) {
    EXPECT_FALSE(std::regex_match(bad, pattern)) << bad;
  }
}

}  // namespace
}  // namespace crowdsurf::controller
