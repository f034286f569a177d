// The HTTP server against requests and answers that are written out byte by byte.
#include "base/edge/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <stdexcept>

#include "tests/unit/base_edge/http_fixture.h"

namespace crowdsurf {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HttpServerTest : public HttpFixture {};

TEST_F(HttpServerTest, AnswersByMethodAndPath) {
  Start();
  EXPECT_THAT(Ask("GET /healthz HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Ask("GET /nothing HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask("POST /healthz HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
  const std::string echo =
      Ask("POST /echo?a=b HTTP/1.1\r\nX-Word: hi\r\nContent-Length: 4\r\n\r\nbody");
  EXPECT_THAT(echo, HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"));
  EXPECT_THAT(echo, EndsWith("\r\n\r\nPOST /echo a=b hi 127.0.0.1 body"));
}

TEST_F(HttpServerTest, AHeadHasTheLengthOfItsGetAndNoBody) {
  Start();
  const std::string head = Ask("HEAD /healthz HTTP/1.1\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(head, EndsWith("\r\n\r\n"));
}

TEST_F(HttpServerTest, KeepsAConnectionAndAnswersPipelinedRequestsInOrder) {
  Start();
  RawClient client(port());
  for (const char* word : {"one", "two"}) {
    ASSERT_TRUE(client.Send(Echo(word)));
    EXPECT_THAT(client.ReadUntil(word), EndsWith(word));
  }
  ASSERT_TRUE(client.Send(Echo("three") + Echo("four") + "GET /healthz HTTP/1.0\r\n\r\n"));
  const std::string replies = client.ReadToEnd();
  EXPECT_LT(replies.find("three"), replies.find("four"));
  EXPECT_LT(replies.find("four"), replies.find("ok\n"));
}

TEST_F(HttpServerTest, ClosesAConnectionThatHadItsRequests) {
  limits_.requests = 2;
  Remake();
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send(Echo("one") + Echo("two") + Echo("three")));
  const std::string replies = client.ReadToEnd();
  EXPECT_THAT(replies, HasSubstr("two"));
  EXPECT_THAT(replies, Not(HasSubstr("three")));
}

TEST_F(HttpServerTest, RefusesAHeaderThatIsTooLongOrHasTooManyFields) {
  Start();
  EXPECT_THAT(Ask("GET /healthz HTTP/1.1\r\nA: " + std::string(20'000, 'a')),
              StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(Ask("GET /" + std::string(20'000, 'a')), StartsWith("HTTP/1.1 431"));
  std::string fields;
  for (int i = 0; i < 65; ++i) fields += "A: a\r\n";
  EXPECT_THAT(Ask("GET /healthz HTTP/1.1\r\n" + fields + "\r\n"), StartsWith("HTTP/1.1 431"));
  EXPECT_EQ(Refused("header"), 3);
}

TEST_F(HttpServerTest, RefusesABodyThatIsTooLong) {
  Start();
  EXPECT_THAT(
      Ask("POST /echo HTTP/1.1\r\nContent-Length: 65537\r\n\r\n" + std::string(65'537, 'x')),
      StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(Ask("GET /healthz HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_EQ(Refused("body"), 2);
}

TEST_F(HttpServerTest, ReadsAChunkedBodyUpToTheCapAndCutsTheRest) {
  Start();
  const std::string head = "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_THAT(Ask(head + "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"), EndsWith(" abcde"));
  RawClient client(port());
  ASSERT_TRUE(client.Send(head));
  const std::string chunk = "8000\r\n" + std::string(0x8000, 'x') + "\r\n";
  size_t sent = 0;
  while (sent < (100u << 20) && client.Send(chunk)) sent += chunk.size();
  // What a refused client still got rid of lies in the kernel's buffers.
  EXPECT_LT(sent, 16u << 20);
  EXPECT_EQ(Refused("body"), 1);
}

TEST_F(HttpServerTest, RefusesWhatIsNotHttp) {
  Start();
  EXPECT_THAT(Ask("\x16\x03\x01 hello\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Ask("GET /healthz HTTP/1.1\r\nno colon\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Ask("POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Ask("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
              StartsWith("HTTP/1.1 400"));
  EXPECT_EQ(Refused("malformed"), 4);
}

TEST_F(HttpServerTest, AHandlerThatThrowsIsAnErrorOfItsRequestAlone) {
  server_->Get(
      "/throws", HttpServer::Runs::kAtOnce,
      [](const HttpServer::Request&) -> HttpServer::Reply { throw std::runtime_error(""); });
  server_->Get(
      "/throws-later", HttpServer::Runs::kOnPool,
      [](const HttpServer::Request&) -> HttpServer::Reply { throw std::runtime_error(""); });
  Start();
  EXPECT_THAT(Ask("GET /throws HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 500"));
  EXPECT_THAT(Ask("GET /throws-later HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 500"));
  EXPECT_THAT(Ask("GET /healthz HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(Refused("failed"), 2);
}

TEST_F(HttpServerTest, HandlersThatWaitDelayNoProbeAndTheQueueIsBounded) {
  limits_.waiting = 1;
  Remake();
  std::latch begun(1), go(1);
  server_->Get("/waits", HttpServer::Runs::kOnPool, [&](const HttpServer::Request& request) {
    if (request.query == "first") begun.count_down();
    go.wait();
    return HttpServer::Reply{200, "waited"};
  });
  Start();
  RawClient first(port()), second(port()), third(port());
  ASSERT_TRUE(first.Send("GET /waits?first HTTP/1.1\r\n\r\n"));
  begun.wait();
  ASSERT_TRUE(second.Send("GET /waits HTTP/1.1\r\n\r\n"));
  // The one I/O thread has read the second when it answers this.
  EXPECT_THAT(Ask("GET /healthz HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  ASSERT_TRUE(third.Send("GET /waits HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(third.ReadUntil("\r\n\r\n"), HasSubstr("503 Service Unavailable\r\nRetry-After: 1"));
  EXPECT_EQ(Refused("busy"), 1);
  go.count_down();
  EXPECT_THAT(first.ReadUntil("waited"), EndsWith("waited"));
  EXPECT_THAT(second.ReadUntil("waited"), EndsWith("waited"));
}

TEST_F(HttpServerTest, AFloodFromOneAddressLeavesAThreadToTheOthers) {
  std::latch begun(1), go(1);
  server_->Get("/waits", HttpServer::Runs::kOnPool, [&](const HttpServer::Request& request) {
    if (request.peer == "127.0.0.2") return HttpServer::Reply{200, "served"};
    if (request.query == "first") begun.count_down();
    go.wait();
    return HttpServer::Reply{200, "waited"};
  });
  Start();
  std::vector<RawClient> flood;
  for (int i = 0; i < 20; ++i) {
    flood.emplace_back(port());
    ASSERT_TRUE(flood.back().Send(i == 0 ? "GET /waits?first HTTP/1.1\r\n\r\n"
                                         : "GET /waits HTTP/1.1\r\n\r\n"));
  }
  begun.wait();
  RawClient other(port(), "127.0.0.2");
  ASSERT_TRUE(other.Send("GET /waits HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(other.ReadUntil("served"), EndsWith("served"));
  go.count_down();
  server_->Stop();  // the handlers use what ends here
}

TEST_F(HttpServerTest, ListensWhereItIsTold) {
  for (const char* listen : {"::", "0.0.0.0", "localhost"}) {
    HttpServer server({"test", listen}, metrics_);
    server.Get("/healthz", HttpServer::Runs::kAtOnce, [](const HttpServer::Request& request) {
      return HttpServer::Reply{200, request.peer};
    });
    ASSERT_TRUE(server.Start().ok()) << listen;
    RawClient client(server.port());
    if (!client.connected() && std::string(listen) == "localhost") continue;  // ::1 here
    ASSERT_TRUE(client.Send("GET /healthz HTTP/1.0\r\n\r\n")) << listen;
    EXPECT_THAT(client.ReadToEnd(), EndsWith("\r\n\r\n127.0.0.1")) << listen;
  }
}

TEST_F(HttpServerTest, SaysThatAPortIsTaken) {
  Start();
  HttpServer second({"test", "127.0.0.1", port()}, metrics_);
  const Status taken = second.Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(taken));
  EXPECT_THAT(std::string(taken.message()), HasSubstr("127.0.0.1:" + std::to_string(port())));
}

TEST_F(HttpServerTest, StopsWhileConnectionsHang) {
  std::latch begun(1), go(1);
  server_->Get("/waits", HttpServer::Runs::kOnPool, [&](const HttpServer::Request&) {
    begun.count_down();
    go.wait();
    return HttpServer::Reply{};
  });
  Start();
  RawClient silent(port()), dripping(port()), idle(port()), waiting(port()), queued(port());
  ASSERT_TRUE(dripping.Send("GET / HT"));
  ASSERT_TRUE(idle.Send(Echo("one")));
  EXPECT_THAT(idle.ReadUntil("one"), EndsWith("one"));
  ASSERT_TRUE(waiting.Send("GET /waits HTTP/1.1\r\n\r\n"));
  begun.wait();
  ASSERT_TRUE(queued.Send("GET /waits HTTP/1.1\r\n\r\n"));
  go.count_down();
  server_->Stop();
  server_->Stop();
  for (RawClient* client : {&silent, &dripping, &idle}) EXPECT_EQ(client->ReadToEnd(), "");
  EXPECT_FALSE(RawClient(port()).connected());
}

}  // namespace
}  // namespace crowdsurf
