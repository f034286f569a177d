// Files that appear whole or not at all: their modes, old readers, links in the way, a full disk.
#include "base/edge/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

namespace crowdsurf {
namespace {

namespace fs = std::filesystem;

class FilesTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/files_test_XXXXXX";
    folder_ = mkdtemp(name);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Path(const char* name) const { return folder_ + "/" + name; }
  size_t Entries() const {
    size_t entries = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_)) ++entries;
    return entries;
  }
  std::string folder_;
};

TEST_F(FilesTest, WhatWasWrittenIsReadAndNothingElseIsThere) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), {AsBytes("one "), AsBytes("two")}).ok());
  ASSERT_TRUE(WriteFileAtomically(Path("b"), "", {.durable = Durable::kYes}).ok());
  EXPECT_EQ(*ReadFile(Path("a")), "one two");
  EXPECT_EQ(*ReadFile(Path("b")), "");
  EXPECT_EQ(Entries(), 2u);
}

TEST_F(FilesTest, TheModeIsAsAskedWhateverTheUmaskIs) {
  const mode_t before = umask(0077);
  ASSERT_TRUE(WriteFileAtomically(Path("open"), "x", {.mode = 0644}).ok());
  umask(0);
  ASSERT_TRUE(WriteFileAtomically(Path("secret"), "x", {.mode = 0600}).ok());
  umask(before);
  EXPECT_EQ(fs::status(Path("open")).permissions(), fs::perms(0644));
  EXPECT_EQ(fs::status(Path("secret")).permissions(), fs::perms(0600));
}

TEST_F(FilesTest, AReaderThatHoldsTheOldFileKeepsIt) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "old").ok());
  const int fd = OpenSharedFile(Path("a"));
  ASSERT_GE(fd, 0);
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "newer").ok());
  char block[8] = {};
  EXPECT_EQ(read(fd, block, sizeof block), 3);
  EXPECT_STREQ(block, "old");
  close(fd);
  EXPECT_EQ(*ReadFile(Path("a")), "newer");
}

TEST_F(FilesTest, ALinkInTheWayIsReplacedNotFollowed) {
  ASSERT_TRUE(WriteFileAtomically(Path("victim"), "mine").ok());
  fs::create_symlink(Path("victim"), Path("a"));
  fs::create_symlink(Path("victim"), Path("a.new"));
  EXPECT_EQ(OpenSharedFile(Path("a")), -1);
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "yours").ok());
  EXPECT_EQ(*ReadFile(Path("victim")), "mine");
  EXPECT_EQ(*ReadFile(Path("a")), "yours");
}

TEST_F(FilesTest, ErrorsNameThePathAndWhatIsWrong) {
  const Status nowhere = WriteFileAtomically(Path("no/such"), "x");
  EXPECT_TRUE(absl::IsNotFound(nowhere)) << nowhere;
  EXPECT_EQ(nowhere.message(), "cannot write " + Path("no/such") + ": No such file or directory");
  EXPECT_TRUE(absl::IsNotFound(ReadFile(Path("none")).status()));
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "four").ok());
  EXPECT_EQ(*ReadFile(Path("a"), 4), "four");
  EXPECT_TRUE(absl::IsOutOfRange(ReadFile(Path("a"), 3).status()));
  EXPECT_FALSE(MakeFolders(Path("a") + "/below").ok());
}

TEST_F(FilesTest, AFullDiskLeavesTheOldFileAndNothingElse) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "old").ok());
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 16;
  setrlimit(RLIMIT_FSIZE, &small);
  const Status full = WriteFileAtomically(Path("a"), std::string(100, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_EQ(*ReadFile(Path("a")), "old");
  EXPECT_EQ(Entries(), 1u);
}

}  // namespace
}  // namespace crowdsurf
