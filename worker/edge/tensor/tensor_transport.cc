#include "worker/edge/tensor/tensor_transport.h"
#include "worker/edge/tensor/tensor_asio.h"

#include <csignal>

#include "base/check.h"
#include "worker/edge/tensor/tensor_transport_impl.h"

namespace crowdsurf::worker {

TensorTransport::TensorTransport(TensorTransportOptions options, const dht::Identity& identity,
                                 HostLoop& host, MetricRegistry& metrics, Logger log)
    : impl_(std::make_shared<Impl>(std::move(options), identity, host, metrics, log)) {}
TensorTransport::~TensorTransport() { Stop(); }

void TensorTransport::SetHandlers(TensorHandlers handlers) {
  impl_->SetHandlers(std::move(handlers));
}
Status TensorTransport::Start() { return impl_->Start(); }
void TensorTransport::Stop() { impl_->Stop(); }
std::string TensorTransport::endpoint() const { return impl_->endpoint(); }
TensorTransport::Sent TensorTransport::Send(const PeerId& to, const std::string& endpoint,
                                            TensorHeader header, SharedBytes payload) {
  return impl_->Send(to, endpoint, header,
                     {.header = {}, .chunk = false, .payload = std::move(payload)});
}
TensorTransport::Sent TensorTransport::SendLent(const PeerId& to, const std::string& endpoint,
                                                TensorHeader header, ByteView lent) {
  return impl_->Send(to, endpoint, header,
                     {.header = {}, .chunk = false, .payload = nullptr, .lent = lent});
}
void TensorTransport::KeepLent() { impl_->KeepLent(); }
std::vector<std::pair<PeerId, uint32_t>> TensorTransport::TakeLeft() { return impl_->TakeLeft(); }
const std::shared_ptr<BytePool>& TensorTransport::pool() const { return impl_->pool(); }
ResultSlots& TensorTransport::slots() { return impl_->slots(); }
void TensorTransport::Forget(const PeerId& peer) { impl_->Forget(peer); }
std::optional<TokenHalves> TensorTransport::GiveToken(const PeerId& peer) {
  return impl_->GiveToken(peer);
}
void TensorTransport::UseToken(const PeerId& peer, uint64_t number,
                               std::optional<TokenHalves> halves) {
  impl_->UseToken(peer, number, halves);
}
void TensorTransport::LoseToken(const PeerId& peer) { impl_->LoseToken(peer); }
void TensorTransport::CountRefused(TokenRefusal refusal) { impl_->CountRefused(refusal); }

TensorTransport::Impl::Impl(TensorTransportOptions options, const dht::Identity& identity,
                            HostLoop& host, MetricRegistry& metrics, Logger log)
    : options_(std::move(options)),
      identity_(identity),
      host_(host),
      metrics_(metrics),
      log_(log),
      relay_(options_.relay),
      credentials_(identity.directory()),
      tokens_(options_.token_table),
      io_(1),
      work_(asio::make_work_guard(io_)),
      acceptor_(io_),
      accept_pause_(io_),
      resolver_(io_) {
  if (options_.tokens) metrics_.DeclareTokens();
}

Status TensorTransport::Impl::Start() {
  CHECK(!(options_.tls && options_.tokens));
  // A dead peer must be an error, not a signal, whatever library writes to it.
  std::signal(SIGPIPE, SIG_IGN);
  if (options_.tls) RETURN_IF_ERROR(credentials_.Refresh());
  RETURN_IF_ERROR(Listen());
  AcceptNext();
  thread_ = std::thread([this] { io_.run(); });
  if (relay_ != nullptr) {
    // On the relay's thread, which may outlive this: weak until the I/O thread has it.
    relay_->SetProver(dht::RelayPort::kTensor, [weak = weak_from_this()](const dht::Contact& end) {
      const auto self = weak.lock();
      if (self == nullptr) return;
      asio::post(self->io_, [weak, end] {
        if (const auto alive = weak.lock()) alive->Prove(end);
      });
    });
  }
  return absl::OkStatus();
}

void TensorTransport::Impl::Stop() {
  if (stopped_.exchange(true)) return;
  if (!thread_.joinable()) return;
  if (relay_ != nullptr) relay_->SetProver(dht::RelayPort::kTensor, nullptr);
  // Links and connections belong to the I/O thread, so it closes them.
  asio::post(io_, [this] {
    std::error_code ignored;
    acceptor_.close(ignored);
    accept_pause_.cancel();
    resolver_.cancel();
    // A stopped agent is gone: its peers see the close, try once more and know.
    for (auto& [peer, link] : std::exchange(links_, {})) {
      if (link.connection) link.connection->End(TensorEnding::kLost, "stopping");
    }
    for (auto& [number, accepted] : std::exchange(accepted_, {})) {
      accepted.connection->End(TensorEnding::kLost, "stopping");
    }
    // Without the guard io_.run() returns when the last handler has run.
    work_.reset();
  });
  thread_.join();
}

TensorTransport::Sent TensorTransport::Impl::Send(const PeerId& to, const std::string& endpoint,
                                                  TensorHeader header, OutFrame frame) {
  const ByteView bytes = frame.bytes();
  CHECK_LE(bytes.size(), kMaxTensorPayload);
  header.payload_bytes = static_cast<uint32_t>(bytes.size());
  // A result brings its hash along, from the fold or from the frame that it came in.
  if (header.kind != TensorKind::kResult) {
    frame.unhashed = !options_.tls;
    const bool hashed = !frame.unhashed && IsHashed(header.kind, TensorWire::kTls);
    header.hash = hashed ? TensorPayloadHash(header.instance, bytes) : 0;
  }
  std::shared_ptr<TensorOutbox> outbox;
  {
    const std::lock_guard lock(mutex_);
    SharedOutbox& shared = outboxes_[to];
    if (Clock::now() < shared.refuse_until || stopped_) {
      metrics_.dropped.Add();
      return Sent::kDown;
    }
    if (!shared.outbox) shared.outbox = std::make_shared<TensorOutbox>(options_.queue_bytes);
    outbox = shared.outbox;
  }
  frame.header = EncodeTensorHeader(header);
  frame.chunk = IsChunk(header.kind);
  switch (outbox->Push(std::move(frame))) {
    case TensorOutbox::Pushed::kQueued:
      // Frames are ahead of it, so the I/O thread is writing and comes to it.
      return Sent::kQueued;
    case TensorOutbox::Pushed::kQueuedFirst:
      asio::post(io_, [this, to, endpoint, outbox] { Wake(to, endpoint, outbox); });
      return Sent::kQueued;
    case TensorOutbox::Pushed::kFull:
      metrics_.full.Add();
      return Sent::kFull;
    case TensorOutbox::Pushed::kClosed:
      break;
  }
  metrics_.dropped.Add();
  return Sent::kDown;
}

void TensorTransport::Impl::KeepLent() {
  std::vector<std::shared_ptr<TensorOutbox>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [peer, shared] : outboxes_)
      if (shared.outbox) all.push_back(shared.outbox);
  }
  for (const auto& outbox : all) outbox->Keep(*pool_);
}

std::vector<std::pair<PeerId, uint32_t>> TensorTransport::Impl::TakeLeft() {
  std::vector<std::pair<PeerId, uint32_t>> left;
  const std::lock_guard lock(mutex_);
  for (const auto& [peer, shared] : outboxes_) {
    const uint32_t chunks = shared.outbox ? shared.outbox->TakeLeft() : 0;
    if (chunks > 0) left.emplace_back(peer, chunks);
  }
  return left;
}

void TensorTransport::Impl::Forget(const PeerId& peer) {
  asio::post(io_,
             [this, peer] { DropLink(peer, Clock::duration::zero(), DownEvidence::kUnreachable); });
}

}  // namespace crowdsurf::worker
