// Tensor connection: one TCP connection (TLS 1.3 on it, or plain), driven by readiness.
//
// Runs on one I/O thread of the transport only. The dialling side sends frames of one outbox, the
// accepting side receives them; each first sends Hello, from which, with the key of the
// certificate, the other's id follows. Without certificates each Hello may show a half of a token
// (tensor_tokens.h). Scatter/gather without a copy when plain; with TLS, payloads
// are encrypted from where they lie. Ends once, with a reason.
// Whatever a peer sends is checked before it is believed or allocated for; before its Hello at most
// kMaxTensorHello bytes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/byte_pool.h"
#include "base/time.h"
#include "worker/edge/tensor/tensor_asio.h"
#include "worker/edge/tensor/tensor_frame.h"
#include "worker/edge/tensor/tensor_outbox.h"
#include "worker/edge/tensor/tensor_payload.h"
#include "worker/edge/tensor/tensor_tls.h"

namespace crowdsurf::worker {

class AveragingClock;

enum class TensorEnding : uint8_t {
  kRefused,  // nobody listens there
  kWrong,    // another peer, job or certificate than expected
  kFailed,   // unreachable, no answer in time, or TLS failed before it was open
  kLost,     // was open; reset or closed without a goodbye
  kGarbage,  // was open; sent what is no frame, or bytes that fail their hash
  kGoodbye,  // closed in good order
};
const char* TensorEndingName(TensorEnding ending);  // closed set, for metrics

class TensorConnection : public std::enable_shared_from_this<TensorConnection> {
 public:
  struct Events {
    // The other side's Hello was verified; without certificates its token is the caller's to judge
    // where none is expected. False: it is not wanted, end as kWrong.
    std::function<bool(const TensorHello& peer)> on_open;
    // A whole frame whose payload has the hash it names. False: stop reading until Resume.
    std::function<bool(const TensorHeader& header, TensorPayload payload)> on_frame;
    std::function<void(size_t bytes)> on_sent;
    std::function<void()> on_drained;  // a refused pusher may go on
    std::function<void(TensorEnding ending, const std::string& why)> on_end;  // last, once
    std::function<void()> on_impostor = {};  // who answered did not show the token it should
  };

  struct Settings {
    TensorHello self;
    Duration open_within;
    std::shared_ptr<BytePool> payloads;  // where their buffers come from
    AveragingClock* clock = nullptr;     // is told of sending and receiving
    ResultSlots* slots = nullptr;        // that results are received into; outlives the connection
    std::function<bool(const dht::PublicKey& key, uint64_t boot)> old_boot = {};  // counts no more
  };

  // `credentials` is nullptr for plain TCP. It, and the executor of `socket`, outlive the
  // connection.
  TensorConnection(asio::ip::tcp::socket socket, const TlsCredentials* credentials,
                   Settings settings, Events events);

  void Dial(const asio::ip::tcp::endpoint& to, std::shared_ptr<TensorOutbox> outbox);
  // As Dial, on a socket that somebody else connects: ExpectSocket first, so that the deadline
  // runs, then UseSocket with the descriptor, whose owner this is now.
  void ExpectSocket(std::shared_ptr<TensorOutbox> outbox);
  void UseSocket(int fd);
  // What the own Hello shows, and what the other's must: before it is dialled, or, on the accepting
  // side, within on_open.
  void ShowToken(const TensorToken& token) { shows_ = token; }
  void ExpectToken(const TensorToken& token) { expects_ = token; }
  void Accept();
  void Flush();   // the outbox has something
  void Resume();  // after on_frame said false
  // Ends now as `ending`; a goodbye is written if the socket takes it.
  void End(TensorEnding ending, std::string why);
  // That the other side's certificate shows; nullopt: there is no TLS.
  std::optional<dht::PublicKey> PeerKey() const {
    return tls_ == nullptr ? std::nullopt : tls_->PeerKey();
  }
  bool open() const { return state_ == State::kOpen; }
  bool ended() const { return state_ == State::kEnded; }
  // The own Hello went out unencrypted, so the other end could refuse what it says.
  bool said_plain_hello() const { return said_plain_hello_; }

 private:
  enum class State : uint8_t { kConnecting, kHandshake, kHello, kOpen, kEnded };

  void StartDeadline();
  void StartOpening();
  void Drive();
  bool DriveHandshake();
  void SendFirst(const TensorHeader& header, const Bytes& payload);
  void SendHello();
  void PumpWrites();
  IoOutcome WriteOnce();
  IoOutcome WriteQueuePlain();
  IoOutcome WriteQueueTls();
  IoOutcome WriteBytes(ByteView bytes);
  IoOutcome Flushed();
  void Advance(size_t bytes);
  void LookAtRoundTrip(size_t bytes);
  void PumpReads();
  IoOutcome ReadNext();
  IoOutcome ReadBytes(std::span<uint8_t> into);
  IoOutcome ReadPayload(std::span<uint8_t> rest);
  bool TakeRead(size_t bytes);
  bool TakeHeader();
  bool TakeIfWhole();
  bool TakeFrame();
  bool VerifyPayload();
  bool TakeHello();
  void OnStuck(const IoOutcome& outcome);
  void ArmRead();
  void ArmWrite();

  asio::ip::tcp::socket socket_;
  asio::steady_timer deadline_;
  const TlsCredentials* credentials_;
  std::unique_ptr<TlsStream> tls_;
  const Settings settings_;
  Events events_;
  State state_ = State::kConnecting;
  bool accepting_ = false, paused_ = false, read_armed_ = false, write_armed_ = false;
  bool said_plain_hello_ = false;

  std::optional<TensorToken> shows_, expects_;
  std::shared_ptr<TensorOutbox> outbox_;
  std::optional<OutFrame> front_;  // the outbox's first frame, once looked at
  size_t front_sent_ = 0;          // bytes of it
  Bytes first_;                    // Hello or Goodbye: before the outbox
  size_t first_sent_ = 0;
  size_t until_look_ = 0;  // bytes to write until the kernel is asked for the round trip

  TensorHeaderBytes header_bytes_{};
  size_t header_got_ = 0;
  TensorHeader header_;
  TensorPayload payload_;
  size_t payload_got_ = 0;
  size_t ahead_ = 0;  // bytes of the next header that came with the payload
};

}  // namespace crowdsurf::worker
