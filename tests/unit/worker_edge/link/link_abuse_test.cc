// The link against what goes wrong: garbage, oversize, a full volume, a trainer killed at any
// moment.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/rng.h"
#include "tests/support/eventually.h"
#include "tests/unit/worker_edge/link/link_fixture.h"
#include "tests/unit/worker_edge/state/file_size_limit.h"
#include "tests/unit/worker_edge/tensor/no_descriptors.h"
#include "worker/edge/link/link_http.h"
#include "worker/edge/link/link_mapping.h"

namespace crowdsurf::worker {
namespace {

using testing::HasSubstr;

struct LinkAbuse : LinkFixture {
  HttpClient Http() { return *HttpClient::Connect(dir_ + "/agent.sock"); }
  StatusOr<HttpReply> Do(const char* method, const char* target, const std::string& body) {
    return Http().Do(method, target, body, Seconds(20));
  }
  double Refused(const char* reason) {
    return metrics_.Value("crowdsurf_link_requests_refused_total", {{"reason", reason}});
  }
  // A trainer in a process of its own, killed while it is copying its snapshot: the file's words
  // are left as they are then. Simulated exactly: everything but the last store of Publish.
  static constexpr char kRegister[] =
      R"({"tensors": [{"name": "w", "shape": [100]}], "fresh": true})";
};

TEST_F(LinkAbuse, GarbageInABodyIsAnsweredInWordsAndChangesNothing) {
  StartServer();
  const std::pair<const char*, const char*> cases[] = {
      {"", "no JSON object"},
      {"[]", "no JSON object"},
      {"{\"tensors\": 3}", "\"tensors\" must be an array"},
      {"{\"tensors\": [3]}", "tensors[0]: each tensor is an object"},
      {"{\"tensors\": [{\"name\": \"w\"}]}", "\"shape\" must be an array"},
      {"{\"tensors\": [{\"name\": \"w\", \"shape\": [-1]}]}", "whole numbers"},
      {"{\"tensors\": [{\"name\": \"w\", \"shape\": [0]}]}", "at least 1"},
      {"{\"tensors\": [{\"name\": \"\", \"shape\": [2]}]}", "1 to 256 printable"},
      {"{\"tensors\": [{\"name\": \"w\", \"shape\": [2], \"dtype\": \"float16\"}]}",
       "float16 is reserved"},
      {"{\"tensors\": [{\"name\": \"w\", \"shape\": [2], \"role\": \"Loss\"}]}",
       "one of Parameter"},
      {"{\"tensors\": [{\"name\": \"w\", \"shape\": [2], \"group_in\": 1e9}]}", "-1 to 65535"},
      {"{\"tensors\": [{\"name\": \"w\", \"shape\": [2], \"units\": 1}]}",
       "array of at most 8 axes"},
      {"{\"tensors\": [{\"name\": \"w\", \"shape\": [2], \"units\": [1]}]}", "is an object"},
      {"{\"tensors\": [{\"name\": \"w\", \"shape\": [2], \"units\": [{\"axis\": 8}]}]}", "0 to 7"},
      {"{\"tensors\": [{\"name\": \"w\", \"shape\": [2], \"units\": [{\"axis\": 1}]}]}",
       "tensor \"w\": there is no axis 1"},
      {"{\"tensors\": [{\"name\": \"w\", \"shape\": [2], \"units\": [{\"blocks\": 3}]}]}",
       "tensor \"w\": axis 0 is not a whole number of 3 blocks"},
      {"{\"tensors\": [{\"name\": \"w\", \"shape\": [2], \"units\": [{\"size\": 0}]}]}",
       "must be 1 to"},
      {"{\"tensors\": [{\"name\": \"w\", \"shape\": [2], \"group_out\": 0, \"units\": [{}]}]}",
       "two unit groups"},
      {"{\"tensors\": [{\"name\": \"w\", \"shape\": [2]}], \"fresh\": 1}", "true or false"},
      {"{\"tensors\": [{\"name\": \"w\", \"shape\": [2]}], \"metrics\": [1]}", "different names"},
      {"{\"tensors\": [], \"metrics\": [\"a\", \"a\"]}", "different names"},
      {"{\"tensors\": [], \"metrics\": \"loss\"}", "array of at most 16 names"},
      {"{\"tensors\": [], \"metrics\": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}",
       "array of at most 16 names"},
      {"{\"tensors\": [{\"name\": \"w\\ud800\", \"shape\": [2]}]}", "no JSON object"},
  };
  for (const auto& [body, words] : cases) {
    const auto reply = Do("POST", "/v1/register", body);
    ASSERT_TRUE(reply.ok()) << body << reply.status();
    EXPECT_EQ(reply->code, 400) << body;
    EXPECT_THAT(reply->body, HasSubstr(absl::StrCat("{\"error\":\""))) << body;
    std::string unescaped;
    for (const char c : reply->body) {
      if (c != '\\') unescaped.push_back(c);
    }
    EXPECT_THAT(unescaped, HasSubstr(words)) << body;
  }
  EXPECT_FALSE(server_->mapped());
  EXPECT_EQ(Do("POST", "/v1/register", kRegister)->code, 200);
}

TEST_F(LinkAbuse, DeeplyNestedJsonIsRefusedBeforeItIsParsed) {
  StartServer();
  const std::string deep(1'000'000, '[');
  const auto reply = Do("POST", "/v1/register", deep);
  EXPECT_EQ(reply->code, 400);
  EXPECT_THAT(reply->body, HasSubstr("nests too deeply"));
}

TEST_F(LinkAbuse, OversizeBodiesAreRefusedByTheirLength) {
  StartServer();
  auto reply = Do("POST", "/v1/register", std::string(5 << 20, ' '));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->code, 413);
  reply = Do("PUT", "/v1/opaque", std::string((1 << 20) + 1, 'x'));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->code, 413);
  EXPECT_EQ(Refused("too_long"), 2);
  EXPECT_EQ(Do("PUT", "/v1/opaque", std::string(1 << 20, 'x'))->code, 200) << "exactly the limit";
}

TEST_F(LinkAbuse, WhatIsNoHttpEndsItsConnectionOnly) {
  StartServer();
  Rng rng(4711);
  for (int i = 0; i < 50; ++i) {
    std::string garbage(1 + rng.Uniform(40'000), '\0');
    for (char& c : garbage) c = static_cast<char>(rng.Next());
    garbage += "\r\n\r\n";
    HttpHead head;
    EXPECT_NE(ParseHttpHead(garbage, head), HttpParse::kDone);
    Http().Do(garbage, "/", "", Seconds(20)).status().IgnoreError();
  }
  EXPECT_EQ(Refused("garbled"), 50);
  EXPECT_EQ(Do("GET", "/v1/state", "")->code, 200);
}

TEST_F(LinkAbuse, TheHeadParserHoldsItsBounds) {
  HttpHead head;
  EXPECT_EQ(ParseHttpHead("GET / HTTP/1.1\r\nA: b", head), HttpParse::kMore);
  EXPECT_EQ(ParseHttpHead("GET / HTTP/1.1\r\nA: b\r\n\r\n", head), HttpParse::kDone);
  EXPECT_EQ(head.header("a"), "b");
  EXPECT_EQ(ParseHttpHead("GET /\r\n\r\n", head), HttpParse::kBad);
  EXPECT_EQ(ParseHttpHead("GET / SPDY\r\n\r\n", head), HttpParse::kBad);
  const std::string start = "POST / HTTP/1.1\r\n";
  EXPECT_EQ(ParseHttpHead(start + "Content-Length: -1\r\n\r\n", head), HttpParse::kBad);
  EXPECT_EQ(ParseHttpHead(start + "Content-Length: 1e3\r\n\r\n", head), HttpParse::kBad);
  EXPECT_EQ(ParseHttpHead(start + "Content-Length: 99999999999999999999\r\n\r\n", head),
            HttpParse::kBad);
  EXPECT_EQ(ParseHttpHead(start + "Content-Length: 1\r\ncontent-length: 2\r\n\r\n", head),
            HttpParse::kBad);
  EXPECT_EQ(ParseHttpHead(start + "Transfer-Encoding: chunked\r\n\r\n", head), HttpParse::kBad);
  EXPECT_EQ(ParseHttpHead(start + std::string(20'000, 'x'), head), HttpParse::kBad);
  std::string many = start;
  for (int i = 0; i < 70; ++i) many += absl::StrCat("h", i, ": 1\r\n");
  EXPECT_EQ(ParseHttpHead(many + "\r\n", head), HttpParse::kBad);
}

TEST_F(LinkAbuse, ConnectionsAreBoundedAndTheFirstOnesLive) {
  StartServer();
  std::vector<HttpClient> open;
  for (int i = 0; i < 16; ++i) {
    open.push_back(Http());
    EXPECT_EQ(open.back().Do("GET", "/v1/state", "", Seconds(20))->code, 200);
  }
  EXPECT_FALSE(Http().Do("GET", "/v1/state", "", Seconds(20)).ok());
  EXPECT_EQ(Refused("too_many"), 1);
  EXPECT_EQ(open[0].Do("GET", "/v1/state", "", Seconds(20))->code, 200);
}

TEST_F(LinkAbuse, WithoutDescriptorsItTriesAgainWithPausesAndThenAnswers) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer needs a descriptor to look at the type of an object";
#endif
  StartServer();
  HttpClient silent = Http();  // as a trainer's between two requests
  ASSERT_EQ(silent.Do("GET", "/v1/state", "", Seconds(20))->code, 200);
  const auto began = std::chrono::steady_clock::now();
  std::optional<HttpClient> client;
  {
    const int spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const NoDescriptors none;
    close(spare);  // for the client's end
    client.emplace(Http());
    EXPECT_TRUE(EventuallyHolds([&] { return Refused("no_descriptors") >= 3; }));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_LE(Refused("no_descriptors"), took.count() / 0.1 + 2) << "a pause after each";
  EXPECT_EQ(client->Do("GET", "/v1/state", "", Seconds(20))->code, 200);
}

TEST_F(LinkAbuse, CurlCanDriveIt) {
  StartServer();
  EXPECT_THAT(Do("GET", "/v1/state", "")->body, HasSubstr("\"registered\":false"));
  EXPECT_THAT(Do("GET", "/v1/state", "")->body, HasSubstr("\"roles\":[\"Parameter\"]"));
  EXPECT_THAT(Do("GET", "/v1/notice", "")->body, HasSubstr("{\"leaving\":false}"));
  server_->SetNotice(true, 1'700'000'000'500'000'000, "spot");
  EXPECT_THAT(Do("GET", "/v1/notice", "")->body, HasSubstr("1700000000.5"));
  EXPECT_EQ(Do("GET", "/v2/nothing", "")->code, 404);
  EXPECT_EQ(Do("GET", "/v1/opaque", "")->code, 404);
  EXPECT_EQ(Do("POST", "/v1/checkpoint", "")->code, 202);
  Expect<link::CheckpointRequested>();
  HttpClient trainer = Http();
  const auto reply = trainer.Do("POST", "/v1/register", kRegister, Seconds(20));
  EXPECT_THAT(reply->body, HasSubstr("\"outbox\":"));
  Expect<link::TrainerRegistered>();
  EXPECT_EQ(Do("POST", "/v1/progress", R"({"loss": 2.5, "metrics": {"a": 1, "b": null}})")->code,
            200);
  EXPECT_DOUBLE_EQ(server_->counters().loss, 2.5);
  EXPECT_EQ(server_->counters().metrics, (std::map<std::string, double>{{"a", 1.0}}));
  EXPECT_EQ(Do("POST", "/v1/progress", R"({"loss": "low"})")->code, 200) << "null-like: not known";
  EXPECT_EQ(Do("POST", "/v1/progress", "7")->code, 400);
}

TEST_F(LinkAbuse, ALeaveIsAnsweredWhenTheAgentHasLeft) {
  StartServer();
  StatusOr<HttpReply> reply = absl::UnknownError("");
  std::thread caller([&] { reply = Do("POST", "/v1/leave", R"({"reason": "preStop"})"); });
  EXPECT_EQ(Expect<link::LeaveRequested>().reason, "preStop");
  EXPECT_EQ(Do("POST", "/v1/leave", "")->code, 409) << "one at a time";
  server_->LeaveDone();
  caller.join();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->code, 200);
}

TEST_F(LinkAbuse, ATrainerKilledInTheMiddleOfAPublishLeavesNoSnapshot) {
  StartServer();
  int ready[2], go[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto client = LinkClient::Connect(dir_, Seconds(20));
    auto registered = (*client)->Register(Model(100));
    std::vector<float> params(100, 1.0f);
    if (!registered.ok() || !(*client)->Start(params, Seconds(20)).ok()) _exit(1);
    char c;
    if (write(ready[1], "r", 1) != 1 || read(go[0], &c, 1) != 1) _exit(1);
    // Half a copy, then death: `published` was not stored.
    auto mapping = LinkMapping::Open(dir_ + "/tensors");
    std::fill_n(mapping->outbox().begin(), 50, 7.0f);
    kill(getpid(), SIGKILL);
  }
  Expect<link::TrainerRegistered>();
  server_->LetStart();
  char c;
  ASSERT_EQ(read(ready[0], &c, 1), 1);
  server_->RequestPublish(1);
  ASSERT_EQ(write(go[1], "g", 1), 1);
  Expect<link::TrainerGone>();
  int status;
  waitpid(child, &status, 0);
  EXPECT_EQ(server_->counters().published, 0u);
  EXPECT_FALSE(events_.TryTake().has_value());
  for (const int fd : {ready[0], ready[1], go[0], go[1]}) close(fd);
  auto client = Connect();
  ASSERT_TRUE(client->Register(Model(100)).ok()) << "the worker goes on with a new trainer";
  EXPECT_TRUE(Expect<link::TrainerRegistered>().fresh);
}

TEST_F(LinkAbuse, AnAgentKilledWithoutWarningIsReplacedBesideItsLivingTrainer) {
  int said[2];
  ASSERT_EQ(pipe(said), 0);
  const pid_t agent = fork();
  if (agent == 0) {
    StartServer();
    Expect<link::TrainerRegistered>();
    server_->LetStart();
    server_->RequestPublish(1);
    Expect<link::Published>();
    if (write(said[1], "p", 1) != 1) _exit(1);
    while (true) pause();
  }
  auto client = Connect();
  ASSERT_TRUE(client->Register(Model()).ok());
  std::vector<float> params(100, 1.0f);
  ASSERT_TRUE(client->Start(params, Seconds(20)).ok());
  while (!client->StepDone(1, 1, params).published) {
  }
  char c;
  ASSERT_EQ(read(said[0], &c, 1), 1);
  kill(agent, SIGKILL);
  waitpid(agent, nullptr, 0);
  EXPECT_FALSE(client->StepDone(1, 1, params).applied) << "training goes on";
  StartServer();  // over the dead one's socket, with its file
  EXPECT_TRUE(server_->mapped());
  client->StepDone(1, 1, params);
  EXPECT_FALSE(Expect<link::TrainerRegistered>().fresh);
  server_->RequestPublish(2);
  EXPECT_TRUE(client->StepDone(1, 1, params).published);
  EXPECT_EQ(Expect<link::Published>().number, 2u);
  close(said[0]);
  close(said[1]);
}

// pod-lifecycle 5.2, 5.6
TEST_F(LinkAbuse, AFullVolumeIsAnAnswerThatNamesTheSettingToRaise) {
  const std::string small = dir_ + "/small";
  std::filesystem::create_directory(small);
  if (mount("none", small.c_str(), "tmpfs", 0, "size=5m") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs needs root";
  }
  {
    LinkServerOptions options;
    options.dir = small;
    auto started = LinkServer::Start(
        options, [](const LinkEvent&) {}, Logger(), metrics_);
    ASSERT_TRUE(started.ok()) << started.status();
    auto client = LinkClient::Connect(small, Seconds(20));
    const auto refused = (*client)->Register(Model(500'000));
    EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
    EXPECT_THAT(std::string(refused.status().message()),
                testing::AllOf(testing::ContainsRegex("needs 5[89][0-9][0-9] KiB"),
                               HasSubstr("1953 KiB that are averaged"),
                               testing::ContainsRegex(" has (49|5[01])[0-9][0-9] KiB free"),
                               HasSubstr(" and " + small + " has "),
                               HasSubstr("set spec.agent.sharedMemory to at least 7Mi")));
    EXPECT_FALSE(std::filesystem::exists(small + "/tensors"));
    EXPECT_FALSE(std::filesystem::exists(small + "/tensors.new")) << "nothing half made stays";
    EXPECT_TRUE((*client)->Register(Model(1000)).ok()) << "a model that fits is welcome";
    const auto room = (*started)->MakeRoom(6 << 20);
    ASSERT_TRUE(room.ok()) << room.status();
    const Status written = (*room)->Write(0, Bytes(6 << 20));
    EXPECT_TRUE(absl::IsResourceExhausted(written)) << written;
  }
  EXPECT_EQ(umount(small.c_str()), 0);
}

TEST_F(LinkAbuse, ATrainerWhoseStateFindsNoRoomKeepsItsPlace) {
  StartServer();
  HttpClient trainer = Http();
  ASSERT_EQ(trainer.Do("POST", "/v1/register", kRegister, Seconds(20))->code, 200);
  Expect<link::TrainerRegistered>();
  const std::string state(300'000, 'x');
  {
    const FileSizeLimit full(1000);
    const auto reply = trainer.Do("PUT", "/v1/opaque?sequence=1", state, Seconds(20));
    EXPECT_EQ(reply->code, 507);
    EXPECT_THAT(reply->body, HasSubstr("raise spec.agent.sharedMemory"));
  }
  EXPECT_EQ(Refused("disk_full"), 1);
  EXPECT_TRUE(trainer.alive());
  EXPECT_THAT(trainer.Do("GET", "/v1/state", "", Seconds(20))->body,
              HasSubstr("\"connected\":true"));
  EXPECT_EQ(trainer.Do("PUT", "/v1/opaque?sequence=2", state, Seconds(20))->code, 200)
      << "with space again all is well";
}

TEST_F(LinkAbuse, ATrainerWhoseStateIsTooLongKeepsItsPlace) {
  StartServer();
  HttpClient trainer = Http();
  ASSERT_EQ(trainer.Do("POST", "/v1/register", kRegister, Seconds(20))->code, 200);
  Expect<link::TrainerRegistered>();
  const std::string state((1 << 20) + 1, 'x');  // a byte above the fixture's limit
  const auto reply = trainer.Do("PUT", "/v1/opaque?sequence=1", state, Seconds(20));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->code, 413);
  EXPECT_THAT(reply->body, HasSubstr("a body of 1048577 bytes, at most 1048576 here"));
  EXPECT_EQ(Refused("too_long"), 1);
  EXPECT_TRUE(trainer.alive());
  EXPECT_THAT(trainer.Do("GET", "/v1/state", "", Seconds(20))->body,
              HasSubstr("\"connected\":true"));
}

TEST_F(LinkAbuse, AFolderThatIsNotInMemoryIsRefused) {
  LinkServerOptions options;
  options.dir = "/";  // a disk on every machine that runs tests; where it is not, nothing to see
  const auto started = LinkServer::Start(
      options, [](const LinkEvent&) {}, Logger(), metrics_);
  if (started.ok()) GTEST_SKIP() << "the root of this machine is in memory";
  EXPECT_THAT(std::string(started.status().message()), HasSubstr("is not in memory"));
}

TEST_F(LinkAbuse, AnIdleLinkCostsAboutNothing) {
  StartServer();
  auto client = Connect();
  ASSERT_TRUE(client->Register(Model()).ok());
  Expect<link::TrainerRegistered>();
  // The watcher wakes for its beat alone: at most 2 a second, whatever the machine's speed.
  auto mapping = LinkMapping::Open(dir_ + "/tensors");
  LinkControl& c = mapping->control();
  const auto cpu_seconds = [] {
    struct rusage now;
    getrusage(RUSAGE_SELF, &now);
    return static_cast<double>(now.ru_utime.tv_sec + now.ru_stime.tv_sec) +
           static_cast<double>(now.ru_utime.tv_usec + now.ru_stime.tv_usec) * 1e-6;
  };
  // A busy machine can only add to what a window costs, so the cheapest of a few is the link's own
  // cost.
  double used = 1;
  for (int window = 0; window < 3 && used >= 0.01; ++window) {
    const double before = cpu_seconds();
    const uint64_t first = c.agent_beat.value;
    while (c.agent_beat.value < first + 2)
      WaitBell(c.agent_bell.value, c.agent_bell.value, Seconds(1));
    used = std::min(used, cpu_seconds() - before);
  }
  EXPECT_LT(used, 0.01) << "two beats are about a second";
}

}  // namespace
}  // namespace crowdsurf::worker
