// POST /v1/busy: a trainer says that a long pause comes.
#include <gmock/gmock.h>

#include "tests/unit/worker_edge/link/link_fixture.h"
#include "worker/edge/link/link_http.h"

namespace crowdsurf::worker {
namespace {

using ::testing::HasSubstr;

struct LinkBusy : LinkFixture {
  HttpReply Say(const std::string& body) {
    auto http = HttpClient::Connect(dir_ + "/agent.sock");
    EXPECT_TRUE(http.ok()) << http.status();
    auto reply = http->Do("POST", "/v1/busy", body, Seconds(20));
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *std::move(reply) : HttpReply{};
  }
};

TEST_F(LinkBusy, TheAgentHearsForHowLong) {
  StartServer();
  const auto trainer = Connect();
  ASSERT_TRUE(trainer->Register(Model()).ok());
  Expect<link::TrainerRegistered>();
  ASSERT_TRUE(trainer->Busy(Seconds(90)).ok());
  EXPECT_EQ(Expect<link::BusyDeclared>().seconds, 90);
  EXPECT_EQ(Say(R"({"seconds": 0.5})").code, 200);
  EXPECT_EQ(Expect<link::BusyDeclared>().seconds, 0.5);
}

TEST_F(LinkBusy, WithoutATrainerOrANumberItIsRefused) {
  StartServer();
  EXPECT_EQ(Say(R"({"seconds": 1})").code, 409);
  const auto trainer = Connect();
  ASSERT_TRUE(trainer->Register(Model()).ok());
  for (const char* body : {"", "{}", R"({"seconds": -1})", R"({"seconds": "9"})",
                           R"({"seconds": 604801})", R"({"seconds": 1e999})"}) {
    const HttpReply reply = Say(body);
    EXPECT_EQ(reply.code, 400) << body;
    EXPECT_THAT(reply.body, ::testing::AnyOf(HasSubstr("a week"), HasSubstr("no JSON object")));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(trainer->Busy(Seconds(1e6))));
}

}  // namespace
}  // namespace crowdsurf::worker
