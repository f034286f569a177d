// The manifests in deploy/examples: each is admitted, and each strategy that is built has one.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/manifest/fields.h"
#include "cli/run/run_session.h"

namespace crowdsurf::cli {
namespace {

namespace fs = std::filesystem;

std::set<std::string> Manifests(const std::string& folder) {
  std::set<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".yaml") found.insert(entry.path());
  return found;
}

std::optional<LocalJob> Load(const std::string& manifest) {
  RunOptions options;
  options.manifest = manifest;
  std::vector<std::string> problems;
  auto job = LoadJob(options, problems);
  EXPECT_EQ(problems, std::vector<std::string>()) << manifest;
  return job;
}

TEST(ExamplesTest, EveryManifestIsAdmitted) {
  const auto manifests = Manifests("deploy/examples");
  EXPECT_GE(manifests.size(), 3u);
  for (const std::string& manifest : manifests) EXPECT_TRUE(Load(manifest)) << manifest;
}

TEST(ExamplesTest, EveryStrategyHasAManifestThatNamesIt) {
  std::set<std::string> named;
  for (const std::string& manifest : Manifests("deploy/examples/strategies")) {
    const auto job = Load(manifest);
    ASSERT_TRUE(job) << manifest;
    const auto strategy = job->job.spec.averaging["strategy"].get<std::string>();
    named.insert(strategy);
    std::string lower = strategy;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    EXPECT_EQ(fs::path(manifest).stem(), lower);
  }
  const manifest::Field* field = manifest::FindField("averaging.strategy");
  ASSERT_NE(field, nullptr);
  std::set<std::string> built;
  const auto all = field->built.empty() ? field->choices : field->built;
  for (const auto name : manifest::SplitChoices(all)) built.emplace(name);
  EXPECT_EQ(named, built);
}

}  // namespace
}  // namespace crowdsurf::cli
