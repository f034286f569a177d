// The bounds of single words of the link: groups in a registration, marks, and patience.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "tests/unit/worker_edge/link/link_fixture.h"
#include "worker/edge/link/link_api.h"
#include "worker/edge/link/link_http.h"
#include "worker/edge/link/link_mapping.h"

namespace crowdsurf::worker {
namespace {

struct LinkWords : LinkFixture {
  static sockaddr_un AddressOf(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    return address;
  }
  static int ConnectTo(const std::string& path) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = AddressOf(path);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static StatusOr<RegisterRequest> WithGroup(const char* group) {
    return ParseRegister(std::string(R"({"tensors": [{"name": "w", "shape": [2], "group_out": )") +
                         group + "}]}");
  }
};

TEST_F(LinkWords, AGroupIsMinusOneForNoneOrASmallNumber) {
  const auto none = WithGroup("-1");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->tensors[0].units.empty());
  for (const uint32_t group : {0u, 65'535u}) {
    const auto request = WithGroup(std::to_string(group).c_str());
    ASSERT_TRUE(request.ok()) << request.status();
    ASSERT_EQ(request->tensors[0].units.size(), 1u);
    EXPECT_EQ(request->tensors[0].units[0].group, group);
  }
  for (const char* group : {"-2", "65536", "1.5", "\"1\""}) EXPECT_FALSE(WithGroup(group).ok());
}

TEST_F(LinkWords, ATrainerOfAnEarlierClientGivesNoFirstParameters) {
  const auto with = [](const char* first) {
    return ParseRegister(std::string(R"({"tensors": [{"name": "w", "shape": [2]}])") + first + "}");
  };
  ASSERT_TRUE(with("").ok());
  EXPECT_FALSE(with("")->first);
  ASSERT_TRUE(with(R"(, "first": true)").ok());
  EXPECT_TRUE(with(R"(, "first": true)")->first);
  EXPECT_FALSE(with(R"(, "first": 1)").ok());
}

TEST_F(LinkWords, AMarkOfSamplesRingsTheBellOnceAndNotBeforeItIsReached) {
  StartServer();
  std::vector<float> params(100, 1.0f);
  auto client = Train(params);
  auto seen = LinkMapping::Open(dir_ + "/tensors");
  ASSERT_TRUE(seen.ok()) << seen.status();
  const auto& bell = seen->control().trainer_bell.value;
  server_->WakeAt(0, 10);
  const uint32_t rung = bell.load();
  client->StepDone(9, 1, params);
  EXPECT_EQ(bell.load(), rung) << "9 of 10 samples";
  client->StepDone(1, 1, params);
  EXPECT_EQ(bell.load(), rung + 1);
  client->StepDone(1, 1, params);
  EXPECT_EQ(bell.load(), rung + 1) << "a mark rings once";
  EXPECT_GE(Expect<link::StepsReached>().samples, 10u);
}

// Whole lanes of sixteen and what is left behind them.
TEST_F(LinkWords, AResultReachesEveryParameter) {
  StartServer();
  auto client = Connect();
  ASSERT_TRUE(client->Register(Model()).ok());
  Expect<link::TrainerRegistered>();
  server_->LetStart();
  std::vector<float> params(100), expected(100);
  for (size_t i = 0; i < params.size(); ++i) params[i] = expected[i] = static_cast<float>(i);
  ASSERT_TRUE(client->Start(params, Seconds(20)).ok());
  for (const bool is_change : {false, true}) {
    const uint64_t number = is_change ? 2 : 1;
    server_->SetMode(LinkOverlap::kDelayed, is_change, 0);
    server_->RequestPublish(number);
    EXPECT_TRUE(client->StepDone(1, 1, params).published);
    Expect<link::Published>();
    for (size_t i = 0; i < params.size(); ++i) {
      const auto change = static_cast<float>(1 + 2 * i);
      server_->inbox(0)[i] = is_change ? change : server_->outbox()[i] + change;
      expected[i] += change;
    }
    server_->Deliver(number, 0);
    EXPECT_TRUE(client->StepDone(1, 1, params).applied);
    Expect<link::Applied>();
    EXPECT_EQ(params, expected) << "is the inbox the change: " << is_change;
  }
}

TEST_F(LinkWords, AStateIsGivenUnderTheNumberItWasAskedFor) {
  StartServer();
  auto http = HttpClient::Connect(dir_ + "/agent.sock");
  ASSERT_TRUE(http.ok()) << http.status();
  for (const auto& [target, number] :
       {std::pair("/v1/opaque?sequence=7", 7u), std::pair("/v1/opaque", 1u)}) {
    EXPECT_EQ(http->Do("PUT", target, "abc", Seconds(20))->code, 200);
    EXPECT_EQ(Expect<link::OpaqueGiven>().sequence, number) << target;
  }
}

// The socket's buffer is full before the trainer reads: the listener goes on when there is room.
TEST_F(LinkWords, AStateLargerThanTheBufferOfTheSocketArrivesWhole) {
  StartServer();
  auto client = Connect();
  ASSERT_TRUE(client->Register(Model()).ok());
  Expect<link::TrainerRegistered>();
  const Bytes state(1 << 20, 7);
  server_->OfferAdoption(0, 1, Held(state));
  const int slow = ConnectTo(dir_ + "/agent.sock");
  const std::string_view request = "GET /v1/opaque HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
  ASSERT_EQ(send(slow, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  pollfd readable{slow, POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, 20'000), 1);
  // The listener has one thread: when it answers another, it waits for room here.
  auto other = HttpClient::Connect(dir_ + "/agent.sock");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->Do("GET", "/v1/notice", "", Seconds(20))->code, 200);
  size_t got = 0;
  std::vector<char> buffer(64 * 1024);
  while (got < state.size() && poll(&readable, 1, 20'000) == 1) {
    const ssize_t n = recv(slow, buffer.data(), buffer.size(), 0);
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  EXPECT_GE(got, state.size());
  close(slow);
}

// Somebody who takes the connection and never answers, until the client has given up.
TEST_F(LinkWords, AnAnswerThatDoesNotComeIsWaitedForNoLongerThanAllowed) {
  const std::string path = dir_ + "/silent.sock";
  const int silent = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = AddressOf(path);
  ASSERT_EQ(bind(silent, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(silent, 1), 0);
  auto client = HttpClient::Connect(path);
  ASSERT_TRUE(client.ok()) << client.status();
  std::mutex mutex;
  std::condition_variable changed;
  bool given_up = false;
  std::thread closer([&] {  // ends a client that would wait for ever
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(20), [&] { return given_up; });
    close(silent);
  });
  const auto reply = client->Do("GET", "/v1/notice", "", Milliseconds(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(reply.status())) << reply.status();
  {
    const std::lock_guard lock(mutex);
    given_up = true;
  }
  changed.notify_all();
  closer.join();
}

}  // namespace
}  // namespace crowdsurf::worker
