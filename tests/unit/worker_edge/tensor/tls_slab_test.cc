// What lies between OpenSSL and a socket: gathering, sockets that take a part or nothing, and other
// sides that close or cut in the middle.
#include "worker/edge/tensor/tls_slab.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <span>

#include "base/rng.h"
#include "tests/unit/dht_edge/test_authority.h"
#include "worker/edge/tensor/tensor_tls.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kLarge = size_t{1} << 20;  // more than a slab and a small socket hold

// Two connected sockets that never wait. `send_buffer`: of both, 0: the system's.
class Sockets {
 public:
  explicit Sockets(int send_buffer = 0) {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds_.data()), 0);
    for (const int fd : fds_) {
      if (send_buffer == 0) continue;
      EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer), 0);
    }
  }
  ~Sockets() {
    Close(0);
    Close(1);
  }
  int operator[](size_t side) const { return fds_[side]; }
  void Close(size_t side) {
    if (fds_[side] >= 0) ::close(std::exchange(fds_[side], -1));
  }
  size_t Waiting(size_t side) const {
    int bytes = 0;
    EXPECT_EQ(::ioctl(fds_[side], FIONREAD, &bytes), 0);
    return static_cast<size_t>(bytes);
  }
  // At most `most` of what waits there.
  Bytes Receive(size_t side, size_t most) const {
    Bytes out(most);
    const ssize_t got = ::recv(fds_[side], out.data(), out.size(), 0);
    out.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return out;
  }
  void Send(size_t side, ByteView bytes) const {
    ASSERT_EQ(::send(fds_[side], bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

 private:
  std::array<int, 2> fds_{-1, -1};
};

Bytes Random(size_t size, uint64_t seed) {
  Rng rng(seed);
  Bytes out(size);
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(rng.Next());
  return out;
}

void Append(Bytes& to, ByteView bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

class TlsSlabTest : public testing::Test {
 protected:
  const std::shared_ptr<BytePool> slabs_ = std::make_shared<BytePool>(size_t{1} << 20);
};

TEST_F(TlsSlabTest, WritesWhatItGatheredAtOnceAndNotBefore) {
  const Sockets sockets;
  TlsSlab slab(sockets[0], slabs_);
  const Bytes bytes = Random(3000, 1);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(slab.Add(ByteView(bytes).subspan(1000 * i, 1000)).bytes, 1000U);
  EXPECT_EQ(sockets.Waiting(1), 0U);
  EXPECT_EQ(slab.Flush().state, IoState::kDone);
  EXPECT_EQ(sockets.Receive(1, 4000), bytes);
}

TEST_F(TlsSlabTest, MakesRoomByWriting) {
  const Sockets sockets;
  TlsSlab slab(sockets[0], slabs_);
  EXPECT_TRUE(slab.HasRoom());
  const Bytes most = Random(TlsSlab::kSlabBytes, 2), last = Random(1, 3);
  EXPECT_EQ(slab.Add(most).state, IoState::kDone);
  EXPECT_FALSE(slab.HasRoom());
  EXPECT_EQ(slab.Add(last).state, IoState::kDone);
  EXPECT_EQ(sockets.Receive(1, 2 * most.size()), most);
  EXPECT_TRUE(slab.HasRoom());
}

// The order of bytes survives a socket that takes any part of a write, or nothing.
TEST_F(TlsSlabTest, GoesOnWhereTheSocketStopped) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const Sockets sockets(4096);
    TlsSlab slab(sockets[0], slabs_);
    const Bytes all = Random(kLarge, seed);
    Bytes arrived;
    size_t added = 0, refused = 0;
    while (arrived.size() < all.size()) {
      const size_t next = std::min(all.size() - added, 1 + rng.Uniform(TlsSlab::kMaxRecordBytes));
      const bool takes = next > 0 && slab.Add(ByteView(all).subspan(added, next)).bytes == next;
      if (takes) added += next;
      const bool written = added < all.size() || slab.Flush().state == IoState::kDone;
      refused += takes && written ? 0 : 1;
      if (!takes) Append(arrived, sockets.Receive(1, 1 + rng.Uniform(20'000)));
    }
    EXPECT_EQ(arrived, all);
    EXPECT_GT(refused, 0U);
  }
}

TEST_F(TlsSlabTest, ReadsAhead) {
  const Sockets sockets;
  TlsSlab slab(sockets[0], slabs_);
  const Bytes bytes = Random(40'000, 4);
  sockets.Send(1, bytes);
  Bytes head(5), rest(bytes.size() - head.size());
  EXPECT_EQ(slab.Take(head).bytes, head.size());
  EXPECT_EQ(sockets.Waiting(0), 0U);
  EXPECT_EQ(slab.Take(rest).bytes, rest.size());
  Append(head, rest);
  EXPECT_EQ(head, bytes);
  EXPECT_EQ(slab.Take(rest).state, IoState::kWantRead);
  EXPECT_FALSE(slab.at_end());
}

TEST_F(TlsSlabTest, GivesWhatCameBeforeTheEnd) {
  Sockets sockets;
  TlsSlab slab(sockets[0], slabs_);
  sockets.Send(1, Random(7, 5));
  sockets.Close(1);
  Bytes into(100);
  EXPECT_EQ(slab.Take(into).bytes, 7U);
  EXPECT_FALSE(slab.at_end());
  EXPECT_EQ(slab.Take(into).state, IoState::kClosed);
  EXPECT_TRUE(slab.at_end());
}

TEST_F(TlsSlabTest, ABrokenSocketIsClosedAndNoSignal) {
  Sockets sockets;
  TlsSlab slab(sockets[0], slabs_);
  sockets.Close(1);
  EXPECT_EQ(slab.Add(Random(10, 6)).state, IoState::kDone);
  EXPECT_EQ(slab.Flush().state, IoState::kClosed);
}

TEST_F(TlsSlabTest, AnIdleOneKeepsNoBuffer) {
  const Sockets sockets;
  TlsSlab slab(sockets[0], slabs_);
  EXPECT_EQ(slab.Add(Random(10, 12)).state, IoState::kDone);
  EXPECT_EQ(slabs_->waiting_bytes(), 0U);
  EXPECT_EQ(slab.Flush().state, IoState::kDone);
  EXPECT_EQ(slabs_->waiting_bytes(), TlsSlab::kSlabBytes);
  sockets.Send(1, Random(10, 13));
  Bytes into(10);
  EXPECT_EQ(slab.Take(into).bytes, 10U);
  EXPECT_EQ(slabs_->waiting_bytes(), 0U);
  EXPECT_EQ(slab.Take(into).state, IoState::kWantRead);
  EXPECT_EQ(slabs_->waiting_bytes(), TlsSlab::kSlabBytes);
}

// Two ends of a TLS stream, with a wire of two sockets between them that the test moves bytes over.
class TlsSlabStreamTest : public testing::Test {
 protected:
  TlsSlabStreamTest() {
    authority_.Equip(folder_.path(), {.names = "DNS:peer.crowdsurf,URI:crowdsurf://job/worker"});
    credentials_.emplace(folder_.path());
    EXPECT_TRUE(credentials_->Refresh().ok());
    dials_.emplace(*credentials_, dialer_[0], TlsStream::Side::kDials);
    accepts_.emplace(*credentials_, accepter_[0], TlsStream::Side::kAccepts);
    bool open = false;
    for (int i = 0; i < 100 && !open; ++i) {
      const bool dialled = dials_->Handshake().state == IoState::kDone;
      Carry(dialer_, accepter_, kLarge);
      open = accepts_->Handshake().state == IoState::kDone && dialled;
      Carry(accepter_, dialer_, kLarge);
    }
    EXPECT_TRUE(open);
  }

  // At most `most` bytes; how many.
  static size_t Carry(const Sockets& from, const Sockets& to, size_t most) {
    const Bytes bytes = from.Receive(1, most);
    if (!bytes.empty()) to.Send(1, bytes);
    return bytes.size();
  }

  // All that `accepts_` can read now.
  IoOutcome ReadAll(Bytes& into) {
    std::array<uint8_t, 50'000> piece{};
    while (true) {
      const IoOutcome outcome = accepts_->Read(piece);
      if (outcome.state != IoState::kDone) return outcome;
      Append(into, std::span(piece).first(outcome.bytes));
    }
  }

  dht::TemporaryDirectory folder_;
  const dht::TestAuthority authority_;
  std::optional<TlsCredentials> credentials_;
  Sockets dialer_, accepter_;
  std::optional<TlsStream> dials_, accepts_;
};

TEST_F(TlsSlabStreamTest, LargeBytesPassWhatPiecesSoever) {
  Rng rng(7);
  const Bytes all = Random(kLarge, 7);
  Bytes arrived;
  size_t written = 0;
  while (arrived.size() < all.size()) {
    const size_t next = std::min(all.size() - written, 1 + rng.Uniform(200'000));
    const IoOutcome outcome =
        next > 0 ? dials_->Write(ByteView(all).subspan(written, next)) : dials_->Flush();
    ASSERT_TRUE(outcome.state == IoState::kDone || outcome.state == IoState::kWantWrite);
    written += outcome.bytes;
    Carry(dialer_, accepter_, 1 + rng.Uniform(30'000));
    ASSERT_EQ(ReadAll(arrived).state, IoState::kWantRead);
  }
  EXPECT_EQ(arrived, all);
}

TEST_F(TlsSlabStreamTest, AWireThatTakesNothingIsWaitedFor) {
  const Bytes all = Random(kLarge, 8);
  size_t written = 0;
  IoOutcome outcome;
  do {
    outcome = dials_->Write(ByteView(all).subspan(written));
    written += outcome.bytes;
  } while (outcome.state == IoState::kDone && written < all.size());
  EXPECT_EQ(outcome.state, IoState::kWantWrite);
  EXPECT_LT(written, all.size());
  EXPECT_EQ(dials_->Flush().state, IoState::kWantWrite);
}

// A record whose end never comes gives nothing, and the end of the stream is one.
TEST_F(TlsSlabStreamTest, ACutRecordIsNoData) {
  const Bytes all = Random(20'000, 9);
  ASSERT_EQ(dials_->Write(all).bytes, all.size());
  ASSERT_EQ(dials_->Flush().state, IoState::kDone);
  ASSERT_EQ(Carry(dialer_, accepter_, 19'000), 19'000U);  // one record of 16 KiB, and a part
  Bytes arrived;
  EXPECT_EQ(ReadAll(arrived).state, IoState::kWantRead);
  EXPECT_EQ(arrived.size(), 16'384U);
  accepter_.Close(1);
  EXPECT_EQ(ReadAll(arrived).state, IoState::kClosed);
  EXPECT_EQ(arrived.size(), 16'384U);
}

TEST_F(TlsSlabStreamTest, AChangedByteIsRefused) {
  ASSERT_EQ(dials_->Write(Random(100, 10)).bytes, 100U);
  ASSERT_EQ(dials_->Flush().state, IoState::kDone);
  Bytes wire = dialer_.Receive(1, kLarge);
  wire[wire.size() / 2] ^= 1;
  accepter_.Send(1, wire);
  Bytes arrived;
  EXPECT_EQ(ReadAll(arrived).state, IoState::kFailed);
  EXPECT_TRUE(arrived.empty());
}

TEST_F(TlsSlabStreamTest, ACloseInTheMiddleOfAWriteIsSeen) {
  const Bytes all = Random(kLarge, 11);
  ASSERT_GT(dials_->Write(all).bytes, 0U);
  dialer_.Close(1);
  IoOutcome outcome{IoState::kDone, 0};
  for (int i = 0; i < 100 && outcome.state == IoState::kDone; ++i) outcome = dials_->Write(all);
  EXPECT_EQ(outcome.state, IoState::kClosed);
}

}  // namespace
}  // namespace crowdsurf::worker
