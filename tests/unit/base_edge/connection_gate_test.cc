// A gate before a server that only takes sockets: floods, ends, and no descriptor left.
#include "base/edge/connection_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/edge/descriptors.h"
#include "tests/support/eventually.h"
#include "tests/support/raw_client.h"

namespace crowdsurf {
namespace {

using Refusal = ConnectionGate::Refusal;

class ConnectionGateTest : public testing::Test {
 protected:
  ConnectionGateTest() {
    options_.listen = "127.0.0.1";
    options_.limits = {.connections = 100, .strangers = 8, .strangers_of_address = 4};
    options_.tick_every = Milliseconds(5);
    options_.refused = [this](Refusal why) {
      const std::lock_guard lock(mutex_);
      ++refused_[why];
    };
  }
  ~ConnectionGateTest() override {
    gate_.reset();
    for (const int fd : taken()) close(fd);
  }
  void Open() {
    gate_ = std::make_unique<ConnectionGate>(options_);
    ASSERT_TRUE(gate_->Open().ok());
    gate_->Serve([this](int, int fd) {
      const std::lock_guard lock(mutex_);
      taken_.push_back(fd);
    });
  }
  std::vector<int> taken() {
    const std::lock_guard lock(mutex_);
    return taken_;
  }
  size_t refused(Refusal why) {
    const std::lock_guard lock(mutex_);
    return refused_[why];
  }
  // The server behind the gate: takes what comes, says hello back, keeps it.
  bool IsServed(RawClient& client) {
    const size_t before = taken().size();
    if (!client.Send("hi") || !EventuallyHolds([&] { return taken().size() > before; })) {
      return false;
    }
    return send(taken().back(), "hello", 5, MSG_NOSIGNAL) == 5 &&
           client.ReadUntil("hello") == "hello";
  }
  // As the server sees its other end.
  static std::string RemoteOf(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    EXPECT_EQ(getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    return ConnectionGate::RemoteOf(address);
  }

  ConnectionGate::Options options_;
  std::unique_ptr<ConnectionGate> gate_;
  std::mutex mutex_;
  std::vector<int> taken_;
  std::map<Refusal, size_t> refused_;
};

TEST_F(ConnectionGateTest, ConnectionsAreHandedOverWithTheirFirstByteAndNotBefore) {
  Open();
  RawClient silent(gate_->port()), speaks(gate_->port());
  EXPECT_TRUE(IsServed(speaks));
  EXPECT_EQ(taken().size(), 1u);
  ASSERT_TRUE(silent.Send("late"));
  EXPECT_TRUE(EventuallyHolds([&] { return taken().size() == 2; }));
  char text[8] = {};
  EXPECT_EQ(recv(taken().back(), text, sizeof text, 0), 4) << "the bytes are the server's to read";
}

TEST_F(ConnectionGateTest, AThousandSilentOnesKeepNobodyOut) {
  Open();
  std::vector<RawClient> many;
  for (int i = 0; i < 300; ++i) many.emplace_back(gate_->port());
  RawClient same(gate_->port()), other(gate_->port(), "127.0.0.2");
  EXPECT_TRUE(IsServed(same));
  EXPECT_TRUE(IsServed(other));
  EXPECT_GE(refused(Refusal::kOfAddress), 290u);
  EXPECT_EQ(taken().size(), 2u);
}

TEST_F(ConnectionGateTest, WhoSaysNothingAndWhoIsNeverKnownIsCutAndCounted) {
  options_.silent = Milliseconds(20);
  options_.unknown = Milliseconds(20);
  Open();
  RawClient silent(gate_->port()), stranger(gate_->port());
  ASSERT_TRUE(stranger.Send("hi"));
  EXPECT_EQ(silent.ReadToEnd(), "");
  EXPECT_EQ(stranger.ReadToEnd(), "");
  EXPECT_TRUE(EventuallyHolds([&] { return refused(Refusal::kTimedOut) == 1; }));
  EXPECT_TRUE(EventuallyHolds([&] { return refused(Refusal::kUnknown) == 1; }));
  { const RawClient gone(gate_->port()); }
  EXPECT_TRUE(EventuallyHolds([&] { return refused(Refusal::kCutOff) == 1; }));
}

TEST_F(ConnectionGateTest, WhoIsKnownStaysAndAnOwnersOldestMakesRoom) {
  options_.limits.of_owner = 2;
  options_.unknown = Seconds(1000);
  Open();
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(gate_->port());
    ASSERT_TRUE(IsServed(clients.back()));
    gate_->Know(RemoteOf(taken().back()), "key");
  }
  EXPECT_EQ(clients[0].ReadToEnd(), "");
  EXPECT_EQ(refused(Refusal::kOfOwner), 1u);
  ASSERT_EQ(send(taken()[2], "still", 5, MSG_NOSIGNAL), 5);
  EXPECT_EQ(clients[2].ReadUntil("still"), "still");
}

// A number that its new owner has closed may be another file by now.
TEST_F(ConnectionGateTest, WhatTheServerHasClosedIsForgottenAndItsNumberIsNotTouched) {
  options_.limits = {.connections = 2, .strangers = 2, .strangers_of_address = 2};
  options_.unknown = Seconds(1000);
  Open();
  std::vector<RawClient> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back(gate_->port());
    ASSERT_TRUE(IsServed(clients.back()));
    gate_->Know(RemoteOf(taken().back()), "");
  }
  RawClient full(gate_->port());
  EXPECT_EQ(full.ReadToEnd(), "") << "all are known: the new one goes";
  const int number = taken()[0];
  close(number);
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const bool reused = pair[0] == number || pair[1] == number;
  EXPECT_TRUE(EventuallyHolds([&] {
    RawClient next(gate_->port());
    return next.Send("hi") && next.StaysOpenFor(50);
  }));
  EXPECT_EQ(write(pair[0], "x", 1), 1) << (reused ? "its number was another's" : "");
  for (const int fd : pair)
    if (fd != number) close(fd);
}

TEST_F(ConnectionGateTest, WithoutADescriptorItTakesConnectionsAgainWhenThereIsOne) {
  Open();
  RawClient oldest(gate_->port()), first(gate_->port());
  ASSERT_TRUE(IsServed(first));  // so both were accepted
  RawClient late(-1);            // its number is the highest that is open
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit tight{static_cast<rlim_t>(late.fd()) + 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(static_cast<uint16_t>(gate_->port()));
  there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(late.fd(), reinterpret_cast<const sockaddr*>(&there), sizeof there), 0);
  const bool served = IsServed(late);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(served);
  EXPECT_GE(refused(Refusal::kNoDescriptor), 1u);
  EXPECT_EQ(oldest.ReadToEnd(), "") << "a stranger gave its own";
}

TEST_F(ConnectionGateTest, ATakenPortAndWhatIsNoAddressAreErrors) {
  Open();
  ConnectionGate second({.listen = "127.0.0.1", .port = gate_->port()});
  EXPECT_THAT(std::string(second.Open().message()), testing::HasSubstr("127.0.0.1:"));
  ConnectionGate name({.listen = "localhost"});
  EXPECT_FALSE(name.Open().ok());
}

TEST(DescriptorsTest, TheSoftLimitIsRaisedToTheHardOneAndPortsHaveAPart) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{std::min<rlim_t>(400, before.rlim_max), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(DescriptorLimit(), low.rlim_cur);
  EXPECT_EQ(RaiseDescriptorLimit(), before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(PartOf(1024, kHttpPart, 256), 128u);
  EXPECT_EQ(PartOf(1 << 20, kHttpPart, 256), 256u);
  EXPECT_EQ(PartOf(10, kStrangersPart, 256), 1u);
}

}  // namespace
}  // namespace crowdsurf
