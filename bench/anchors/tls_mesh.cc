// Anchor of bench/averaging.py: what the wire alone costs. One process of a mesh that moves the
// bytes of a butterfly all-reduce.
//
// Usage: bench_tls_mesh piece|vector RANK SIZE BYTES CREDENTIALS HOST ...    (CREDENTIALS: key.pem,
// cert.pem, ca.pem; a HOST for each rank) One TLS stream a pair and direction, of the agents' own
// kind, and one thread. A call sends BYTES to each of the others and receives as much from each;
// nothing is folded. With `piece` all bytes are one piece that stays in the cache. With `vector`
// they come from memory and go there, as an all-reduce's: each stream walks twice over half of
// them. Writes "ready" once it is connected, for each line "go" the start and the end of one
// call, steady nanoseconds, and "rested" for a line "rest".
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "worker/edge/tensor/tensor_tls.h"

namespace {

using crowdsurf::Bytes;
using crowdsurf::ByteView;
using crowdsurf::worker::IoOutcome;
using crowdsurf::worker::IoState;
using crowdsurf::worker::TlsCredentials;
using crowdsurf::worker::TlsStream;

constexpr uint16_t kPort = 7100, kVectorPort = 7101;  // so that both kinds run side by side
constexpr size_t kPieceBytes =
    size_t{128} * 1024;  // of one call to write or read: a chunk of the agents
constexpr std::chrono::milliseconds kDialAgain{10};

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

sockaddr_in Address(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  CHECK_EQ(inet_pton(AF_INET, host.c_str(), &address.sin_addr), 1);
  return address;
}

int Listen(const std::string& host, uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  const sockaddr_in address = Address(host, port);
  CHECK_EQ(::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
  CHECK_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  CHECK_EQ(::listen(fd, SOMAXCONN), 0);
  return fd;
}

// Until the other process listens.
int Dial(const std::string& host, uint16_t port) {
  const sockaddr_in address = Address(host, port);
  while (true) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    ::close(fd);
    std::this_thread::sleep_for(kDialAgain);
  }
}

// One direction of a pair: the side that dialled sends.
class Stream {
 public:
  // `memory`: bytes that it walks over, again and again.
  Stream(const TlsCredentials& credentials, int fd, TlsStream::Side side, size_t memory)
      : fd_(fd),
        sends_(side == TlsStream::Side::kDials),
        tls_(credentials, fd, side),
        memory_(memory) {
    const int yes = 1;
    CHECK_EQ(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes), 0);
    CHECK_EQ(::fcntl(fd, F_SETFL, O_NONBLOCK), 0);
  }

  void Start(size_t bytes) {
    left_ = bytes;
    at_ = 0;
    flushed_ = !sends_;
  }
  bool done() const { return open_ && left_ == 0 && flushed_; }
  pollfd Waits() const { return {fd_, static_cast<short>(wants_write_ ? POLLOUT : POLLIN), 0}; }

  // Goes on until the socket gives or takes no more.
  void Drive() {
    IoOutcome outcome{IoState::kDone, 0};
    while (!done() && outcome.state == IoState::kDone) outcome = Once();
    CHECK(outcome.state != IoState::kClosed && outcome.state != IoState::kFailed);
    wants_write_ = outcome.state == IoState::kWantWrite;
  }

 private:
  IoOutcome Once() {
    if (!open_) {
      const IoOutcome outcome = tls_.Handshake();
      open_ = outcome.state == IoState::kDone;
      return outcome;
    }
    if (left_ == 0) {
      const IoOutcome outcome = tls_.Flush();
      flushed_ = outcome.state == IoState::kDone;
      return outcome;
    }
    if (at_ == memory_.size()) at_ = 0;
    const std::span<uint8_t> rest = std::span(memory_).subspan(at_);
    const auto piece = rest.first(std::min({left_, rest.size(), kPieceBytes}));
    const IoOutcome outcome = sends_ ? tls_.Write(piece) : tls_.Read(piece);
    left_ -= outcome.bytes;
    at_ += outcome.bytes;
    return outcome;
  }

  const int fd_;
  const bool sends_;
  TlsStream tls_;
  Bytes memory_;
  size_t left_ = 0, at_ = 0;
  bool open_ = false, flushed_ = false, wants_write_ = false;
};

class Mesh {
 public:
  Mesh(size_t rank, const std::vector<std::string>& hosts, const TlsCredentials& credentials,
       size_t memory, uint16_t port)
      : memory_(memory) {
    const int listener = Listen(hosts[rank], port);
    for (size_t other = 0; other < hosts.size(); ++other)
      if (other != rank) Add(credentials, Dial(hosts[other], port), TlsStream::Side::kDials);
    for (size_t other = 1; other < hosts.size(); ++other) {
      const int fd = ::accept(listener, nullptr, nullptr);
      CHECK_GE(fd, 0);
      Add(credentials, fd, TlsStream::Side::kAccepts);
    }
    ::close(listener);
    Move(0);  // the handshakes
  }

  // Sends `bytes` on each stream of this side, and receives as much on each of the others'.
  void Move(size_t bytes) {
    for (const auto& stream : streams_) stream->Start(bytes);
    while (true) {
      std::vector<pollfd> waits;
      for (const auto& stream : streams_) {
        stream->Drive();
        if (!stream->done()) waits.push_back(stream->Waits());
      }
      if (waits.empty()) return;
      CHECK_GE(::poll(waits.data(), waits.size(), -1), 0);
    }
  }

 private:
  void Add(const TlsCredentials& credentials, int fd, TlsStream::Side side) {
    streams_.push_back(std::make_unique<Stream>(credentials, fd, side, memory_));
  }

  const size_t memory_;  // of each stream
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  std::signal(SIGPIPE, SIG_IGN);
  const bool vector = argv[1] == std::string("vector");
  const std::vector<std::string> hosts(argv + 6, argv + argc);
  const size_t bytes = std::strtoull(argv[4], nullptr, 10);
  TlsCredentials credentials(argv[5]);
  CHECK(credentials.Refresh().ok());
  Mesh mesh(std::strtoull(argv[2], nullptr, 10), hosts, credentials,
            vector ? bytes / 2 : kPieceBytes, vector ? kVectorPort : kPort);
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "rest") {
      std::cout << "rested" << std::endl;
      continue;
    }
    const int64_t begin = Now();
    mesh.Move(bytes);
    std::cout << begin << " " << Now() << std::endl;
  }
}
