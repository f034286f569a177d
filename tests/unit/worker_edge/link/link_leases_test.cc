// Leases on the link: POST /v1/data, GET /v1/leases, and a trainer that waits for them.
#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tests/unit/worker_edge/link/link_fixture.h"
#include "worker/edge/link/link_http.h"
#include "worker/edge/link/link_mapping.h"

namespace crowdsurf::worker {
namespace {

using nlohmann::json;

struct LinkLeases : LinkFixture {
  HttpReply Do(const char* method, const char* target, const std::string& body = "") {
    auto http = HttpClient::Connect(dir_ + "/agent.sock");
    EXPECT_TRUE(http.ok()) << http.status();
    auto reply = http->Do(method, target, body, Seconds(20));
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *std::move(reply) : HttpReply{};
  }
  // A trainer that registers and starts.
  std::unique_ptr<LinkClient> Trainer() {
    auto client = Connect();
    EXPECT_TRUE(client->Register(Model()).ok());
    Expect<link::TrainerRegistered>();
    server_->LetStart();
    return client;
  }
  LinkMapping Words() { return *LinkMapping::Open(dir_ + "/tensors"); }
  // What a trainer without a lease stores, and rings.
  static void Wait(LinkControl& words, uint64_t version) {
    words.leases.seen.store(version);
    words.leases.waits.store(1);
    RingBell(words.trainer_bell.value);
  }
  // Two scans of the words, from the first to the last: no other event comes of them.
  void Scan(LinkControl& words) {
    for (int i = 0; i < 2; ++i) {
      server_->WakeAt(0, ++samples_);
      words.samples.value.store(samples_);
      RingBell(words.trainer_bell.value);
      EXPECT_EQ(Expect<link::StepsReached>().samples, samples_);
    }
  }
  uint64_t samples_ = 0;
};

TEST_F(LinkLeases, ADataSetReachesTheAgentWithTheSeedOfTheJob) {
  StartServer();
  const auto trainer = Trainer();
  EXPECT_EQ(Do("POST", "/v1/data", R"({"samples": 2000, "unit": 10})").code, 200);
  EXPECT_EQ(Expect<link::DataDeclared>().spec, (DataSpec{.samples = 2000, .unit = 10, .seed = 42}));
  EXPECT_EQ(Do("POST", "/v1/data", R"({"samples": 281474976710656, "seed": 7})").code, 200);
  EXPECT_EQ(Expect<link::DataDeclared>().spec,
            (DataSpec{.samples = kMaxDataSamples, .unit = 1, .seed = 7}));
}

TEST_F(LinkLeases, BadDataIsRefusedInWordsAndTheAgentHearsNothingOfIt) {
  StartServer();
  const auto trainer = Trainer();
  const std::pair<const char*, const char*> cases[] = {
      {"", "no JSON object"},
      {"[2000, 10]", "no JSON object"},
      {"{}", "\"samples\" must be 1 to 2^48"},
      {R"({"samples": 0})", "\"samples\" must be 1 to 2^48"},
      {R"({"samples": 281474976710657})", "\"samples\" must be 1 to 2^48"},
      {R"({"samples": -1})", "\"samples\""},
      {R"({"samples": 1.5})", "\"samples\""},
      {R"({"samples": "2000"})", "\"samples\""},
      {R"({"samples": 1e300})", "\"samples\""},
      {R"({"samples": 2000, "unit": 0})", "\"unit\" must be 1 to 2^24"},
      {R"({"samples": 2000, "unit": 16777217})", "\"unit\" must be 1 to 2^24"},
      {R"({"samples": 2000, "seed": -3})", "\"seed\""},
  };
  for (const auto& [body, words] : cases) {
    const HttpReply reply = Do("POST", "/v1/data", body);
    EXPECT_EQ(reply.code, 400) << body;
    const json error = json::parse(reply.body, nullptr, false);
    ASSERT_TRUE(error.contains("error")) << body << reply.body;
    EXPECT_THAT(error["error"].get<std::string>(), testing::HasSubstr(words)) << body;
  }
  EXPECT_EQ(Do("POST", "/v1/data", R"({"samples": 1})").code, 200);
  EXPECT_EQ(Expect<link::DataDeclared>().spec.samples, 1u) << "the first that is heard of";
}

TEST_F(LinkLeases, WithoutATrainerThereIsNobodyToDrawThem) {
  StartServer();
  EXPECT_EQ(Do("POST", "/v1/data", R"({"samples": 2000})").code, 409);
  const HttpReply none = Do("GET", "/v1/leases");
  EXPECT_EQ(none.code, 200);
  EXPECT_EQ(json::parse(none.body), json::parse(R"({"stream": 0, "begin": 0, "leases": [],
                                                   "closed": false, "other": null})"));
}

TEST_F(LinkLeases, WhatIsGrantedIsAnsweredWholeAndMovesTheVersion) {
  StartServer();
  const auto trainer = Trainer();
  const LinkMapping words = Words();
  const auto& version = words.control().leases_version.value;
  const uint64_t before = version.load();
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  LeasesGranted granted;
  granted.stream = 7;
  granted.begin = 96;
  granted.leases = {{0, 8, 16}, {1, 0, kMax}};
  server_->SetLeases(granted);
  EXPECT_EQ(version.load(), before + 1);
  EXPECT_EQ(json::parse(Do("GET", "/v1/leases").body), json({{"stream", 7},
                                                             {"begin", 96},
                                                             {"leases", {{0, 8, 16}, {1, 0, kMax}}},
                                                             {"closed", false},
                                                             {"other", nullptr}}));
  granted.leases.clear();
  granted.closed = true;
  granted.other = {.samples = 99, .unit = 4, .seed = 5};
  server_->SetLeases(granted);
  EXPECT_EQ(version.load(), before + 2);
  const json other = json::parse(Do("GET", "/v1/leases").body);
  EXPECT_EQ(other["closed"], true);
  EXPECT_EQ(other["leases"], json::array());
  EXPECT_EQ(other["other"], json({{"samples", 99}, {"unit", 4}, {"seed", 5}}));
}

// A trainer that comes to the end of its leases says so once for each version of them.
TEST_F(LinkLeases, ATrainerThatWaitsIsHeardOnceForWhatItHasRead) {
  StartServer();
  const auto trainer = Trainer();
  const LinkMapping words = Words();
  LinkControl& control = words.control();
  Wait(control, control.leases_version.value.load());
  Expect<link::LeasesWaited>();
  EXPECT_TRUE(server_->counters().leases.waits);
  EXPECT_TRUE(server_->counters().waits_for_agent) << "it does not hang";
  Scan(control);  // nothing has changed
  // New leases are there, and it has not read them: it waits by the old ones.
  LeasesGranted granted;
  granted.stream = 3;
  granted.leases = {{0, 0, 8}};
  server_->SetLeases(granted);
  Scan(control);
  EXPECT_FALSE(server_->counters().leases.waits);
  // It reads them, trains them, and waits again.
  control.leases.waits.store(0);
  control.leases.position.store(8);
  control.leases.stream.store(3);
  EXPECT_EQ(server_->counters().leases.at, (StreamPosition{3, 8}));
  Wait(control, control.leases_version.value.load());
  Expect<link::LeasesWaited>();
  Scan(control);
}

TEST_F(LinkLeases, ASnapshotCarriesTheTrainersPositionAndAFreshTrainerBeginsWithoutOne) {
  StartServer();
  auto trainer = Trainer();
  LeasesGranted granted;
  granted.stream = 3;
  granted.leases = {{0, 0, 48}};
  server_->SetLeases(granted);
  const uint64_t version = Words().control().leases_version.value.load();
  {
    const LinkMapping words = Words();
    LinkControl& control = words.control();
    std::vector<float> params(100, 1.0f);
    ASSERT_TRUE(trainer->Start(params, Seconds(20)).ok());
    control.leases.stream.store(3);
    control.published.stream.store(3);
    control.published.position.store(24);
    server_->RequestPublish(1);
    EXPECT_TRUE(trainer->StepDone(1, 1, params).published);
    EXPECT_EQ(Expect<link::Published>().leases, (StreamPosition{3, 24}));
  }
  trainer.reset();
  Expect<link::TrainerGone>();
  trainer = Trainer();
  EXPECT_EQ(server_->counters().leases, StreamProgress{});
  EXPECT_EQ(Words().control().published.stream.load(), 0u);
  EXPECT_EQ(Words().control().leases_version.value.load(), version + 1);
  EXPECT_EQ(json::parse(Do("GET", "/v1/leases").body)["leases"], json::array());
}

}  // namespace
}  // namespace crowdsurf::worker
