#include "coordinator-free-dht/edge/relay.h"

#include <openssl/rand.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "base/check.h"
#include "coordinator-free-dht/edge/relay_impl.h"

namespace crowdsurf::dht {
namespace {

Rng SeededRng() {
  uint64_t seed = 0;  // numbers of searches must differ between agents
  CHECK_EQ(RAND_bytes(reinterpret_cast<unsigned char*>(&seed), sizeof seed), 1);
  return Rng(seed);
}

class RefusedCall : public grpc::ServerBidiReactor<peer::RelayPiece, peer::RelayPiece> {
 public:
  // An error of the call and not an answer: the asker takes it for unreachable and asks others.
  RefusedCall() { Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many")); }
  void OnDone() override { delete this; }
};

}  // namespace

RelaySocket::~RelaySocket() {
  if (fd_ >= 0) ::close(fd_);
}
int RelaySocket::Take() { return std::exchange(fd_, -1); }

class Relay::Impl::Service : public peer::PeerRelay::CallbackService {
 public:
  explicit Service(Impl& relay) : relay_(relay) {}
  grpc::ServerBidiReactor<peer::RelayPiece, peer::RelayPiece>* Carry(
      grpc::CallbackServerContext* context) override {
    ServedCall* call = relay_.Serve(relay_.KeyOf(*context));
    if (call != nullptr) return call;
    return new RefusedCall;
  }

 private:
  Impl& relay_;
};

Relay::Relay(RelayOptions options, MetricRegistry& metrics, Logger logger)
    : impl_(std::make_unique<Impl>(std::move(options), metrics, logger)) {}
Relay::~Relay() { Stop(); }

grpc::Service* Relay::service() { return impl_->service(); }
Status Relay::Start() { return impl_->Start(); }
void Relay::Stop() { impl_->Stop(); }
const std::string& Relay::entrance() const { return impl_->entrance().address(); }
const std::string& Relay::secret() const { return impl_->entrance().secret(); }
bool Relay::SaysDead(const std::string& reason) {
  // gRPC 1.51 hands a proxy's refusal on as text only.
  return reason.find("response code 410") != std::string::npos;
}

void Relay::OnStreamUp(const Contact& peer, StreamPath path) {
  impl_->WithPaths([&](RelayPaths& paths) { paths.OnStreamUp(peer, path); });
}
void Relay::OnStreamDown(const PeerId& peer) {
  impl_->WithPaths([&](RelayPaths& paths) { paths.OnStreamDown(peer); });
}
void Relay::Introduce(const PeerId& peer, const std::string& endpoint, RelayPort port) {
  impl_->WithPaths([&](RelayPaths& paths) { paths.Introduce(peer, endpoint, port); });
}
void Relay::OnProved(const Contact& end) {
  const Time now = impl_->Now();
  impl_->WithPaths([&](RelayPaths& paths) { paths.OnProved(now, end); });
  impl_->OnProof(end.endpoint, DownEvidence::kUnreachable);
}
void Relay::OnUnproved(const std::string& endpoint, DownEvidence evidence) {
  impl_->WithPaths([&](RelayPaths& paths) { paths.OnUnproved(endpoint); });
  impl_->OnProof(endpoint, evidence);
}
void Relay::SetProver(RelayPort port, std::function<void(const Contact&)> prover) {
  impl_->SetProver(port, std::move(prover));
}
bool Relay::Via(const Contact& to) const {
  return impl_->WithPaths([&](RelayPaths& paths) { return paths.Via(to); });
}
AfterFailure Relay::OnDialFailed(const Contact& to, DownEvidence evidence) {
  const Time now = impl_->Now();
  return impl_->WithPaths([&](RelayPaths& paths) { return paths.OnDialFailed(now, to, evidence); });
}
void Relay::OnCarriedFailed(const Contact& to) {
  const Time now = impl_->Now();
  impl_->WithPaths([&](RelayPaths& paths) { paths.OnCarriedFailed(now, to); });
}
void Relay::OnDead(const PeerId& peer) {
  const Time now = impl_->Now();
  impl_->WithPaths([&](RelayPaths& paths) { paths.OnDead(now, peer); });
}
bool Relay::Dead(const PeerId& peer) const {
  const Time now = impl_->Now();
  return impl_->WithPaths([&](RelayPaths& paths) { return paths.Dead(now, peer); });
}
void Relay::Connect(const std::string& endpoint, Connected done) {
  impl_->Connect(endpoint, std::move(done));
}

Relay::Impl::Impl(RelayOptions options, MetricRegistry& metrics, Logger logger)
    : options_(std::move(options)),
      metrics_(metrics),
      log_(logger.For("relay")),
      service_(std::make_unique<Service>(*this)),
      paths_(options_.config, metrics_),
      searches_(options_.config, options_.self, paths_, metrics_, SeededRng()),
      work_(asio::make_work_guard(loop_)),
      entrance_(loop_, metrics_,
                [this](const std::string& endpoint, RelayReply reply) {
                  Want(endpoint, std::move(reply));
                }),
      timer_(loop_),
      asked_host_(loop_, metrics_, Releaser(asked_)),
      served_host_(loop_, metrics_, Releaser(served_)),
      channels_(kRelayChannels) {
  provers_[RelayPort::kPeer] = options_.prove_peer;
}

Status Relay::Impl::Start() {
  // Asio writes to sockets whose other end may be gone; the error of the write is enough.
  std::signal(SIGPIPE, SIG_IGN);
  if (Status status = entrance_.Open(); !status.ok()) return status;
  thread_ = std::thread([this] { loop_.run(); });
  return absl::OkStatus();
}

void Relay::Impl::Stop() {
  {
    const std::lock_guard lock(mutex_);
    // From here on no question is worked on and no call is taken.
    if (std::exchange(stopped_, true)) return;
  }
  if (!thread_.joinable()) return;
  asio::post(loop_, [this] {
    entrance_.Close();
    timer_.cancel();
    for (auto& [id, session] : sessions_) {
      if (session.pipe) session.pipe->Cut();
      Drop(session, nullptr);
    }
  });
  std::unique_lock lock(mutex_);
  // gRPC holds pointers to calls until its last reaction; they need this thread to let go.
  released_.wait(lock, [this] { return asked_ + served_ == 0; });
  lock.unlock();
  // What still waits has nobody to serve: it goes unrun, with the loop.
  loop_.stop();
  thread_.join();
  sessions_.clear();
  channels_.EraseIf([](const auto&) { return true; });  // not on a thread of gRPC's
}

std::function<void()> Relay::Impl::Releaser(size_t& calls) {
  return [this, &calls] {
    const std::lock_guard lock(mutex_);
    --calls;
    if (stopped_) released_.notify_all();
  };
}

}  // namespace crowdsurf::dht
