// The trainer puts into the shared folder what leads to its agent's own files.
#include "worker/edge/link/link_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "base/edge/files.h"
#include "tests/unit/worker_edge/link/link_fixture.h"
#include "tests/unit/worker_edge/state/scratch_folder.h"
#include "worker/edge/link/link_http.h"

namespace crowdsurf::worker {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kKey[] = "-----BEGIN PRIVATE KEY-----\n";
constexpr char kRegister[] = R"({"tensors": [{"name": "w", "shape": [100]}], "fresh": true})";

std::string Text(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

// A link's folder, and beside it the agent's own with a key in it.
class LinkFolderAbuse : public LinkFixture, public testing::WithParamInterface<const char*> {
 protected:
  LinkFolderAbuse() {
    WriteText(key_, kKey);
    EXPECT_EQ(chmod(key_.c_str(), 0600), 0);
  }
  // The trainer's: whatever has the name goes.
  void Plant(const std::string& name) {
    std::filesystem::remove(dir_ + "/" + name);
    std::filesystem::create_symlink(key_, dir_ + "/" + name);
  }
  void ExpectKeyAsItWas() {
    EXPECT_EQ(Text(key_), kKey);
    struct stat info {};
    EXPECT_EQ(stat(key_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
  }
  HttpReply Do(const char* method, const char* target, const std::string& body) {
    const auto reply =
        HttpClient::Connect(dir_ + "/agent.sock")->Do(method, target, body, Seconds(20));
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : HttpReply{};
  }

  ScratchFolder own_;
  const std::string key_ = own_ / "key.pem";
};
INSTANTIATE_TEST_SUITE_P(, LinkFolderAbuse,
                         testing::Values("tensors", "tensors.new", "tensors.bad", "agent.sock",
                                         "opaque.part", "opaque.state", "adopt.state",
                                         "adopt.state.new", "nameless.new"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST_P(LinkFolderAbuse, ASymbolicLinkToTheKeyIsThereWhenTheAgentStarts) {
  Plant(GetParam());
  StartServer();
  EXPECT_THAT(Do("POST", "/v1/register", kRegister).body, HasSubstr("\"version\":1"));
  Do("PUT", "/v1/opaque?sequence=1", "state");
  server_->OfferAdoption(0, 1, Held(AsBytes("of a donor")));
  EXPECT_EQ(Do("GET", "/v1/opaque", "").body, "of a donor");
  server_.reset();
  ExpectKeyAsItWas();
}

TEST_P(LinkFolderAbuse, ASymbolicLinkToTheKeyComesWhileTheAgentRuns) {
  StartServer();
  auto trainer = *HttpClient::Connect(dir_ + "/agent.sock");
  const auto ask = [&](const char* method, const char* target, const std::string& body) {
    Plant(GetParam());
    const auto reply = trainer.Do(method, target, body, Seconds(20));
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok()) return std::string();
    EXPECT_THAT(reply->body, Not(HasSubstr("PRIVATE")));
    return reply->body;
  };
  ask("POST", "/v1/register", kRegister);
  ask("PUT", "/v1/opaque?sequence=1", "state");
  Plant(GetParam());
  server_->OfferAdoption(0, 1, Held(AsBytes("of a donor")));
  EXPECT_EQ(ask("GET", "/v1/opaque", ""), "of a donor");
  EXPECT_EQ(AsString(Given()), "state");
  ExpectKeyAsItWas();
  // And the next agent, which finds the link.
  server_.reset();
  StartServer();
  ExpectKeyAsItWas();
}

class LinkFolderTest : public LinkFolderAbuse {};

TEST_F(LinkFolderTest, AFifoAHardLinkAndAFolderAreSetAsideAndNobodyHangs) {
  const std::string tensors = dir_ + "/tensors";
  const auto folder = LinkFolder::Open(dir_);
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_EQ(mkfifo(tensors.c_str(), 0666), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(folder->OpenOwn("tensors").status()));
  EXPECT_EQ(OpenSharedFile(tensors), -1);
  StartServer();
  EXPECT_EQ(metrics_.Value("crowdsurf_link_files_set_aside_total"), 1);
  server_.reset();
  std::filesystem::remove(tensors);
  std::filesystem::create_hard_link(key_, tensors);
  const Status second = folder->OpenOwn("tensors").status();
  EXPECT_THAT(std::string(second.message()), HasSubstr("second name"));
  StartServer();
  EXPECT_EQ(metrics_.Value("crowdsurf_link_files_set_aside_total"), 2);
  ExpectKeyAsItWas();
}

TEST_F(LinkFolderTest, AFileInItsPlaceIsRefusedInWords) {
  const Status opened = LinkFolder::Open(key_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(opened)) << opened;
  EXPECT_THAT(std::string(opened.message()), HasSubstr(key_ + ": Not a directory"));
}

TEST_F(LinkFolderTest, AFolderSwappedForALinkIsRefusedAtTheStartAndUnseenAfterIt) {
  const std::string aside = dir_ + ".aside";
  StartServer();
  Do("POST", "/v1/register", kRegister);
  std::filesystem::rename(dir_, aside);
  std::filesystem::create_symlink(own_.path(), dir_);
  server_->OfferAdoption(0, 1, Held(AsBytes("of a donor")));
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(aside + "/agent.sock")) << "it is still the agent's folder";
  LinkServerOptions options;
  options.dir = dir_;
  options.require_memory = false;
  const auto started = LinkServer::Start(
      options, [](const LinkEvent&) {}, Logger(), metrics_);
  EXPECT_TRUE(absl::IsFailedPrecondition(started.status())) << started.status();
  ExpectKeyAsItWas();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(own_.path()),
                          std::filesystem::directory_iterator()),
            1);
  std::filesystem::remove(dir_);
  std::filesystem::rename(aside, dir_);
}

TEST_F(LinkFolderTest, NothingIsWrittenThroughALinkInACheckpointFolder) {
  const std::string path = dir_ + "/checkpoint-1.crowdsurf";
  Plant("checkpoint-1.crowdsurf");
  Plant("checkpoint-1.crowdsurf.w.new");
  EXPECT_EQ(OpenSharedFile(path), -1);
  ASSERT_TRUE(WriteFileAtomically(path, "new", {.writer = "w"}).ok());
  EXPECT_EQ(Text(path), "new");
  ExpectKeyAsItWas();
}

}  // namespace
}  // namespace crowdsurf::worker
