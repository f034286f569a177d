// The listener of agent.sock alone: what it does by the clock, when nobody else wakes it.
#include "worker/edge/link/link_listener.h"

#include <gmock/gmock.h>

#include "tests/unit/worker_edge/link/link_fixture.h"

namespace crowdsurf::worker {
namespace {

using LinkListenerTest = LinkFixture;

TEST_F(LinkListenerTest, ARequestThatStaysHalfSentIsAnsweredAndItsConnectionEnds) {
  const auto folder = LinkFolder::Open(dir_);
  ASSERT_TRUE(folder.ok()) << folder.status();
  LinkListenerOptions options;
  options.folder = &*folder;
  options.request_patience = Milliseconds(100);
  const auto listener = LinkListener::Start(
      options, [](LinkListener::ConnectionId, HttpRequest&&) { return HttpReply(); },
      [](LinkListener::ConnectionId) {}, metrics_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  auto client = HttpClient::Connect(dir_ + "/agent.sock");
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(client->Do("GET", "/", "", Seconds(20))->code, 200);
  // A body of which some bytes come: the rest of this request's own head.
  const char* half = "POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n";
  const auto reply = client->Do(half, "/", "", Seconds(20));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->code, 408);
  EXPECT_THAT(reply->body, testing::HasSubstr("did not arrive in time"));
  EXPECT_FALSE(client->Do("GET", "/", "", Seconds(20)).ok());
  EXPECT_EQ(metrics_.Value("crowdsurf_link_requests_refused_total", {{"reason", "slow"}}), 1);
}

}  // namespace
}  // namespace crowdsurf::worker
