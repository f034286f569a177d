// The CRD that is shipped is the one that the table of fields makes.
#include "operator/core/job/crd.h"

#include <gtest/gtest.h>

#include <fstream>
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
    if (field.fallback.empty()) continue;
    EXPECT_EQ(spec[at]["default"], Json::parse(field.fallback)) << field.path;
  }
}

}  // namespace
}  // namespace crowdsurf::controller
