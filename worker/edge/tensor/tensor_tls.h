// Tensor TLS: mutual TLS 1.3 on a non-blocking socket, for the bulk connections.
//
// Records are gathered before they are written (tls_slab.h), so a caller that has nothing more to
// write flushes. The caller waits for readiness. AES-128-GCM first. Both sides show a certificate
// of the job's CA with SAN DNS:peer.crowdsurf; the peer's raw Ed25519 key comes out, the caller
// turns it into a PeerId. TlsCredentials re-reads its files when cert.pem changed (renewal) and is
// used by one thread, as is each TlsStream. OpenSSL stays in the .cc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/byte_pool.h"
#include "base/bytes.h"
#include "base/status.h"
#include "coordinator-free-dht/core/wire/record.h"
#include "worker/edge/tensor/io_outcome.h"

namespace crowdsurf::worker {

class TlsCredentials {
 public:
  // `directory` holds key.pem, cert.pem and ca.pem (the agent's own directory).
  explicit TlsCredentials(std::filesystem::path directory);
  ~TlsCredentials();

  // Loads what is not loaded yet or has changed. Error: which file, and OpenSSL's words.
  Status Refresh();

 private:
  static constexpr size_t kMaxSlabBytes = size_t{4} << 20;  // some sixty slabs that nobody uses

  friend class TlsStream;
  struct Context;
  std::filesystem::path directory_;
  std::filesystem::file_time_type loaded_{};
  std::shared_ptr<Context> context_;  // streams keep the one they were made with
  // Of all streams: those that have bytes in hand.
  const std::shared_ptr<BytePool> slabs_ = std::make_shared<BytePool>(kMaxSlabBytes);
};

class TlsStream {
 public:
  enum class Side : uint8_t { kDials, kAccepts };
  // `fd` is a connected, non-blocking socket that outlives the stream. Pre: Refresh succeeded once.
  TlsStream(const TlsCredentials& credentials, int fd, Side side);
  ~TlsStream();

  // kDone: the peer is of this job. kFailed: error() says why.
  IoOutcome Handshake();
  IoOutcome Read(std::span<uint8_t> into);  // pre: into is not empty
  // Pre: bytes is not empty. May take less than all; what is taken needs its place no more, and is
  // sent when enough is gathered or by Flush.
  IoOutcome Write(ByteView bytes);
  // Sends what Write has gathered. kDone: nothing is left, `bytes` is 0.
  IoOutcome Flush();
  std::optional<dht::PublicKey> PeerKey() const;  // after Handshake
  // Its certificate has a URI crowdsurf://JOB/...: a CA of the user's own may serve several jobs.
  bool PeerIsOfJob(const std::string& job) const;  // after Handshake
  const std::string& error() const { return error_; }

 private:
  struct Session;
  IoOutcome Outcome(int returned);
  std::unique_ptr<Session> session_;
  std::string error_;
};

}  // namespace crowdsurf::worker
