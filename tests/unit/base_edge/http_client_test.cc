// Requests to servers that are slow, hostile or gone: each ends, and nothing of it is kept.
#include "base/edge/http_client.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/mailbox.h"
#include "tests/support/eventually.h"
#include "tests/support/hostile_server.h"
#include "tests/unit/base_edge/http_fixture.h"

namespace crowdsurf {
namespace {

using Answer = HttpClient::Answer;
using Request = HttpClient::Request;

// What the kernel takes for a client that reads no more, both ways and with room to spare. A client
// without a bound takes gigabytes in the same time.
constexpr uint64_t kOfTheKernel = 24 << 20;

class HttpClientTest : public HttpFixture {
 protected:
  std::string Here() const { return "127.0.0.1:" + std::to_string(port()); }
  HttpClient client_;
};

TEST_F(HttpClientTest, AnAnswerComesWhole) {
  server_->Post("/large", 1 << 20, HttpServer::Runs::kAtOnce, [](const HttpServer::Request& r) {
    return HttpServer::Reply{201, std::string(r.body.size(), 'x')};
  });
  Start();
  Request request{.address = Here(), .method = "POST", .target = "/echo?a=b"};
  request.headers = {{"X-Word", "said"}};
  request.body = "body";
  auto answer = client_.Fetch(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "POST /echo a=b said 127.0.0.1 body");
  EXPECT_EQ(client_.Fetch({.address = Here(), .target = "/nowhere"})->status, 404);

  request = {.address = Here(), .method = "POST", .target = "/large"};
  request.body = std::string(1000, 'y');
  request.max_body = 1000;
  EXPECT_EQ(client_.Fetch(request)->body.size(), 1000u);
  request.max_body = 999;
  EXPECT_TRUE(absl::IsResourceExhausted(client_.Fetch(request).status()));
}

TEST_F(HttpClientTest, WhoDripsOrNeverEndsIsCutAndOnlyItsBoundIsRead) {
  for (const Hostile how : kAllHostile) {
    const HostileServer server(how);
    Request request{.address = server.address()};
    request.deadline = Milliseconds(300);
    const Status status = client_.Fetch(request).status();
    EXPECT_FALSE(status.ok()) << static_cast<int>(how);
    const bool slow =
        how == Hostile::kSilent || how == Hostile::kDripsHeader || how == Hostile::kDripsBody;
    EXPECT_EQ(absl::IsDeadlineExceeded(status), slow) << static_cast<int>(how) << " " << status;
    EXPECT_TRUE(EventuallyHolds([&] { return server.open() == 0; })) << "it is closed";
    EXPECT_LT(server.sent(), kOfTheKernel) << static_cast<int>(how);
  }
}

TEST_F(HttpClientTest, OneThatDripsDelaysNoOther) {
  Start();
  const HostileServer drips(Hostile::kDripsHeader);
  Mailbox<Status> ended(64);
  for (int i = 0; i < 16; ++i) {
    client_.Ask({.address = drips.address(), .deadline = Seconds(3600)},
                [&](const StatusOr<Answer>& got) { EXPECT_TRUE(ended.Post(got.status())); });
  }
  ASSERT_TRUE(EventuallyHolds([&] { return drips.open() == 16; }));
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(client_.Fetch({.address = Here(), .target = "/healthz"}).ok());
  }
  EXPECT_EQ(ended.size(), 0u);
  client_.Stop();  // while they drip, for an hour if it were theirs to say
  EXPECT_EQ(ended.size(), 16u);
  while (const auto status = ended.TryTake()) EXPECT_TRUE(absl::IsCancelled(*status)) << *status;
  EXPECT_TRUE(absl::IsCancelled(client_.Fetch({.address = Here()}).status())) << "it has stopped";
}

TEST_F(HttpClientTest, ThereAreNoMoreAtOnceThanTheBoundSays) {
  const HostileServer silent(Hostile::kSilent);
  Mailbox<Status> ended(256);
  const Request request{.address = silent.address(), .deadline = Seconds(3600)};
  for (size_t i = 0; i < HttpClient::kMaxRequests + 3; ++i) {
    client_.Ask(request, [&](const StatusOr<Answer>& got) { (void)ended.Post(got.status()); });
  }
  ASSERT_TRUE(EventuallyHolds([&] { return ended.size() == 3; }));
  while (const auto status = ended.TryTake()) EXPECT_TRUE(absl::IsResourceExhausted(*status));
  client_.Stop();
}

TEST_F(HttpClientTest, NobodyThereIsSaidAtOnceAndNoAddressIsNone) {
  Start();
  const std::string gone = Here();
  server_->Stop();
  EXPECT_TRUE(absl::IsUnavailable(client_.Fetch({.address = gone}).status()));
  for (const char* none : {"", "host", ":80", "host:", "host:0", "host:65536", "host:+1", "::1:80",
                           "[]:80", "host:80x"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(client_.Fetch({.address = none}).status())) << none;
  }
}

// A token of 64 KiB is read from a file, and no field may be that long.
TEST_F(HttpClientTest, AHeaderThatCannotBeSentEndsItsRequestAlone) {
  Start();
  Request request{.address = Here(), .deadline = Milliseconds(300)};
  request.headers = {{"Authorization", std::string(70'000, 'x')}};
  EXPECT_FALSE(client_.Fetch(request).ok());
  EXPECT_TRUE(client_.Fetch({.address = Here(), .target = "/healthz"}).ok());
}

TEST(HttpTrustTest, ATextWithoutACertificateIsNone) {
  for (const char* none : {"", "noise", "-----BEGIN CERTIFICATE-----\nAAAA\n"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(HttpTrust::FromPem(none).status())) << none;
  }
}

}  // namespace
}  // namespace crowdsurf
