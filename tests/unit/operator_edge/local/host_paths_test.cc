// Paths of this machine that a template mounts, each type on what may be there.
#include "operator/edge/local/host_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace crowdsurf::controller {
namespace {

using ::testing::HasSubstr;

class HostPathsTest : public ::testing::Test {
 protected:
  HostPathsTest() {
    std::string name = ::testing::TempDir() + "/host-paths-XXXXXX";
    folder_ = mkdtemp(name.data());
    std::ofstream(folder_ + "/file") << "text";
    mkdir((folder_ + "/folder").c_str(), 0700);
  }
  ~HostPathsTest() override { std::filesystem::remove_all(folder_); }

  std::string Problem(const std::string& name, const std::string& type,
                      const std::string& below = {}) {
    TrainingJobSpec spec;
    nlohmann::json mount = {{"name", "v"}, {"mountPath", "/v"}};
    if (!below.empty()) mount["subPath"] = below;
    spec.pod_template["spec"] = {
        {"containers", {{{"name", "trainer"}, {"volumeMounts", {mount}}}}},
        {"volumes",
         {{{"name", "v"}, {"hostPath", {{"path", folder_ + "/" + name}, {"type", type}}}}}}};
    return std::string(PrepareHostPaths(spec).message());
  }
  bool IsFolder(const std::string& name) const {
    return std::filesystem::is_directory(folder_ + "/" + name);
  }

  std::string folder_;
};

TEST_F(HostPathsTest, AFileIsMountedAsItIs) {
  EXPECT_EQ(Problem("file", "File"), "");
  EXPECT_EQ(Problem("file", ""), "");
  EXPECT_EQ(Problem("file", "FileOrCreate"), "");
  EXPECT_THAT(Problem("file", "Directory"), HasSubstr("/file: is not a folder"));
  EXPECT_THAT(Problem("file", "Socket"), HasSubstr("/file: is not a socket"));
}

TEST_F(HostPathsTest, AFolderKeepsItsModeAndAMissingOneIsMadeWhereTheTypeSaysSo) {
  EXPECT_EQ(Problem("folder", ""), "");
  EXPECT_EQ(Problem("folder", "Directory"), "");
  EXPECT_THAT(Problem("folder", "File"), HasSubstr("/folder: is not a file"));
  struct stat facts = {};
  ASSERT_EQ(stat((folder_ + "/folder").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
  EXPECT_EQ(Problem("new/one", "", "below"), "");
  EXPECT_TRUE(IsFolder("new/one/below"));
  EXPECT_EQ(Problem("two", "DirectoryOrCreate"), "");
  EXPECT_TRUE(IsFolder("two"));
  EXPECT_EQ(Problem("three", "FileOrCreate"), "");
  EXPECT_TRUE(std::filesystem::is_regular_file(folder_ + "/three"));
  EXPECT_THAT(Problem("four", "Directory"), HasSubstr("/four: is not there"));
}

TEST_F(HostPathsTest, WhatCannotBeMadeIsAnErrorThatNamesThePath) {
  EXPECT_THAT(Problem("file/below", ""), HasSubstr("/file/below: Not a directory"));
  EXPECT_THAT(Problem("file", "", "below"), HasSubstr("/file/below: Not a directory"));
}

}  // namespace
}  // namespace crowdsurf::controller
