#include "worker/edge/tensor/tensor_transport.h"
#include "worker/edge/tensor/tensor_asio.h"

#include <algorithm>
#include <csignal>

#include "base/check.h"
#include "base/edge/descriptors.h"
#include "base/edge/processors.h"
#include "worker/edge/tensor/tensor_io_thread.h"

namespace crowdsurf::worker {
namespace {

// Half of the processors: the host's thread and the trainer have work at the same time.
size_t Threads(const TensorTransportOptions& options) {
  if (options.threads > 0) return options.threads;
  return std::clamp(ProcessorsToUse() / 2, size_t{1}, TensorTransportOptions::kMostThreads);
}

}  // namespace

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
std::vector<LeftForPeer> TensorTransport::TakeLeft() { return impl_->TakeLeft(); }
const std::shared_ptr<BytePool>& TensorTransport::pool() const { return impl_->pool(); }
ResultSlots& TensorTransport::slots() { return impl_->slots(); }
std::vector<size_t> TensorTransport::loads() { return impl_->loads(); }
void TensorTransport::Forget(const PeerId& peer) { impl_->Forget(peer); }
void TensorTransport::Expel(const PeerId& peer) { impl_->Expel(peer); }
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
      tokens_(options_.token_table),
      loads_(Threads(options_)),
      threads_([this] {
        std::vector<std::unique_ptr<IoThread>> threads;
        for (size_t i = 0; i < loads_.loads().size(); ++i)
          threads.push_back(std::make_unique<IoThread>(*this, i));
        return threads;
      }()),
      acceptor_(threads_.front()->io()),
      accept_pause_(threads_.front()->io()) {
  if (options_.tokens) metrics_.DeclareTokens();
}
TensorTransport::Impl::~Impl() = default;

Status TensorTransport::Impl::Start() {
  CHECK(!(options_.tls && options_.tokens));
  // A dead peer must be an error, not a signal, whatever library writes to it.
  std::signal(SIGPIPE, SIG_IGN);
  for (const auto& thread : threads_)
    if (options_.tls) RETURN_IF_ERROR(thread->LoadCredentials());
  RETURN_IF_ERROR(Listen());
  AcceptNext();
  for (const auto& thread : threads_) thread->Start();
  started_ = true;
  if (relay_ != nullptr) {
    // On the relay's thread, which may outlive this.
    relay_->SetProver(dht::RelayPort::kTensor, [weak = weak_from_this()](const dht::Contact& end) {
      if (const auto self = weak.lock()) self->Prove(end);
    });
  }
  return absl::OkStatus();
}

void TensorTransport::Impl::Stop() {
  if (stopped_.exchange(true) || !started_) return;
  if (relay_ != nullptr) relay_->SetProver(dht::RelayPort::kTensor, nullptr);
  // First nobody listens any more: a peer that sees its connection end dials at once, and must be
  // refused to know that this agent is gone.
  threads_.front()->Post([this] {
    std::error_code ignored;
    acceptor_.close(ignored);
    accept_pause_.cancel();
    for (const auto& thread : threads_) thread->Post([&thread] { thread->Close(); });
  });
  for (const auto& thread : threads_) thread->Join();
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
  IoThread* thread = nullptr;
  {
    const std::lock_guard lock(mutex_);
    SharedOutbox& shared = outboxes_[to];
    if (Clock::now() < shared.refuse_until || stopped_) {
      metrics_.dropped.Add();
      return Sent::kDown;
    }
    if (!shared.outbox) MakeOutbox(shared);
    outbox = shared.outbox;
    thread = threads_[shared.thread].get();
  }
  frame.header = EncodeTensorHeader(header);
  frame.chunk = IsChunk(header.kind);
  switch (outbox->Push(std::move(frame))) {
    case TensorOutbox::Pushed::kQueued:
      // Frames are ahead of it, so its thread is writing and comes to it.
      return Sent::kQueued;
    case TensorOutbox::Pushed::kQueuedFirst:
      thread->Post([thread, to, endpoint, outbox] { thread->Wake(to, endpoint, outbox); });
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

std::vector<LeftForPeer> TensorTransport::Impl::TakeLeft() {
  std::vector<LeftForPeer> left;
  const std::lock_guard lock(mutex_);
  for (const auto& [peer, shared] : outboxes_) {
    const uint32_t chunks = shared.outbox ? shared.outbox->TakeLeft() : 0;
    if (chunks > 0) left.push_back({peer, chunks, shared.outbox->round_trip()});
  }
  return left;
}

void TensorTransport::Impl::Forget(const PeerId& peer) {
  IoThread* const thread = ThreadOf(peer);
  if (thread == nullptr) return;
  thread->Post([thread, peer] {
    thread->DropLink(peer, Clock::duration::zero(), DownEvidence::kUnreachable);
  });
}

void TensorTransport::Impl::Expel(const PeerId& peer) {
  Forget(peer);
  for (const auto& thread : threads_)
    thread->Post([&accepting = *thread, peer] { accepting.DropAccepted(peer); });
}

// ---- links, for any thread ---------------------------------------------------------------------

void TensorTransport::Impl::MakeOutbox(SharedOutbox& shared) {
  shared.outbox = std::make_shared<TensorOutbox>(options_.queue_bytes);
  shared.thread = loads_.Place();
}

bool TensorTransport::Impl::Probe(const PeerId& peer, const std::string& endpoint) {
  const std::lock_guard lock(mutex_);
  SharedOutbox& shared = outboxes_[peer];
  if (shared.outbox) return false;                       // there is a link, or a Send is on its way
  if (Clock::now() < shared.refuse_until) return false;  // just found dead
  MakeOutbox(shared);
  IoThread* const thread = threads_[shared.thread].get();
  thread->Post(
      [thread, peer, endpoint, outbox = shared.outbox] { thread->Wake(peer, endpoint, outbox); });
  return true;
}

void TensorTransport::Impl::Prove(const dht::Contact& end) {
  IoThread* thread = ThreadOf(end.id);
  if (thread == nullptr) thread = threads_.front().get();  // which finds that there is no link
  thread->Post([thread, weak = weak_from_this(), end] {
    if (const auto alive = weak.lock()) thread->Prove(end);
  });
}

bool TensorTransport::Impl::JustDied(const PeerId& peer) {
  const std::lock_guard lock(mutex_);
  const auto it = outboxes_.find(peer);
  return it != outboxes_.end() && it->second.evidence == DownEvidence::kRefused &&
         Clock::now() < it->second.refuse_until;
}

TensorTransport::Impl::IoThread* TensorTransport::Impl::ThreadOf(const PeerId& peer) {
  const std::lock_guard lock(mutex_);
  const auto it = outboxes_.find(peer);
  const bool linked = it != outboxes_.end() && it->second.outbox != nullptr;
  return linked ? threads_[it->second.thread].get() : nullptr;
}

void TensorTransport::Impl::Leave(size_t thread) {
  const std::lock_guard lock(mutex_);
  loads_.Leave(thread);
}

void TensorTransport::Impl::Unlink(const PeerId& peer, const std::shared_ptr<TensorOutbox>& outbox,
                                   size_t thread, Clock::duration refuse_for,
                                   DownEvidence evidence) {
  const std::lock_guard lock(mutex_);
  loads_.Leave(thread);
  const auto shared = outboxes_.find(peer);
  if (shared != outboxes_.end() && shared->second.outbox == outbox) {
    if (refuse_for == Clock::duration::zero()) {
      outboxes_.erase(shared);
    } else {
      // Until then a Send is refused, instead of dialling an address that just failed.
      shared->second = {nullptr, 0, Clock::now() + refuse_for, evidence};
    }
  }
  // Peers that failed and were never sent to again.
  std::erase_if(outboxes_, [now = Clock::now()](const auto& entry) {
    return entry.second.outbox == nullptr && entry.second.refuse_until < now;
  });
}

void TensorTransport::Impl::HandOverAll() {
  for (const auto& thread : threads_) thread->HandOver();
}

size_t TensorTransport::Impl::Share(size_t bound) const {
  // Not threads_: it is asked while they are made.
  return std::max(size_t{1}, bound / loads_.loads().size());
}

// Of one thread.
ConnectionAdmission::Limits TensorTransport::Impl::Admits() const {
  const size_t strangers = Share(PartOf(DescriptorLimit(), kStrangersPart, options_.strangers));
  return {.connections = Share(options_.accepted),
          .strangers = strangers,
          .strangers_of_address = std::max(size_t{1}, strangers / 2),
          .of_owner = options_.accepted_of_key};
}

// ---- an I/O thread -----------------------------------------------------------------------------

TensorTransport::Impl::IoThread::IoThread(Impl& transport, size_t index)
    : all_(transport),
      index_(index),
      credentials_(transport.identity_.directory()),
      io_(1),  // one thread runs it: Asio saves a lock
      work_(asio::make_work_guard(io_)),
      resolver_(io_),
      admission_(transport.Admits()) {}

void TensorTransport::Impl::IoThread::Start() {
  thread_ = std::thread([this] { io_.run(); });
}

void TensorTransport::Impl::IoThread::Join() { thread_.join(); }

void TensorTransport::Impl::IoThread::Close() {
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
}

}  // namespace crowdsurf::worker
