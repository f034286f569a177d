#include "coordinator-free-dht/edge/relay.h"

#include <openssl/rand.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
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
  RefusedCall() { Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many")); }
  void OnDone() override { delete this; }
};

}  // namespace

RelaySocket::~RelaySocket() {
  if (fd_ >= 0) ::close(fd_);
}
int RelaySocket::Take() { return std::exchange(fd_, -1); }

// ---- the public face ---------------------------------------------------------------------------

class Relay::Impl::Service : public peer::PeerRelay::CallbackService {
 public:
  explicit Service(Impl& relay) : relay_(relay) {}
  grpc::ServerBidiReactor<peer::RelayPiece, peer::RelayPiece>* Carry(
      grpc::CallbackServerContext*) override {
    ServedCall* call = relay_.Serve();
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
void Relay::Connect(const std::string& endpoint, Connected done) {
  impl_->Connect(endpoint, std::move(done));
}

// ---- starting and stopping ---------------------------------------------------------------------

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
      asked_host_(loop_, metrics_.refused_malformed, Releaser(asked_)),
      served_host_(loop_, metrics_.refused_malformed, Releaser(served_)),
      channels_(kRelayChannels) {
  provers_[RelayPort::kPeer] = options_.prove_peer;
}

Status Relay::Impl::Start() {
  std::signal(SIGPIPE, SIG_IGN);
  if (Status status = entrance_.Open(); !status.ok()) return status;
  thread_ = std::thread([this] { loop_.run(); });
  return absl::OkStatus();
}

void Relay::Impl::Stop() {
  {
    const std::lock_guard lock(mutex_);
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

// ---- who asks ----------------------------------------------------------------------------------

ServedCall* Relay::Impl::Serve() {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || !thread_.joinable() || served_ >= options_.config.carried) {
      metrics_.refused_carried.Add();
      return nullptr;
    }
    ++served_;
  }
  const auto call = std::make_shared<ServedCall>(served_host_);
  asio::post(loop_, [this, call] {
    const uint64_t id = ++next_id_;
    call->Serve(
        [this, call = std::weak_ptr(call), id](const RelayQuestion& question) {
          if (const auto alive = call.lock()) OnOpened(id, alive, question);
        },
        [this, id] { Gone(id); });
  });
  return call.get();
}

void Relay::Impl::OnOpened(uint64_t id, const std::shared_ptr<ServedCall>& call,
                           const RelayQuestion& question) {
  Session& session = sessions_[id];
  session.reply = [call](RelayAnswer answer, std::function<void(std::shared_ptr<RelayLeg>)> ready) {
    if (answer != RelayAnswer::kFound) return call->Answer(answer, nullptr);
    call->Answer(answer, [call, ready = std::move(ready)](LegResult result) {
      ready(result == LegResult::kDone ? call : nullptr);
    });
  };
  Decide([&](Time now, RelayActions& out) { searches_.OnQuestion(now, id, question, out); });
}

void Relay::Impl::Want(const std::string& endpoint, RelayReply reply) {
  const uint64_t id = ++next_id_;
  sessions_[id].reply = std::move(reply);
  Decide([&](Time now, RelayActions& out) { searches_.OnWanted(now, id, endpoint, out); });
}

void Relay::Impl::Connect(const std::string& endpoint, Connected done) {
  asio::post(loop_, [this, endpoint, done = std::move(done)] {
    Want(endpoint, [this, done](RelayAnswer answer,
                                const std::function<void(std::shared_ptr<RelayLeg>)>& ready) {
      int ends[2] = {-1, -1};
      const bool found = answer == RelayAnswer::kFound &&
                         ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0;
      if (!found) {
        if (ready) ready(nullptr);
        const bool dead = answer == RelayAnswer::kDead;
        return done(nullptr, dead ? DownEvidence::kRefused : DownEvidence::kUnreachable);
      }
      SocketLeg::Socket own(loop_);
      own.assign(asio::generic::stream_protocol(AF_UNIX, SOCK_STREAM), ends[0]);
      ready(std::make_shared<SocketLeg>(std::move(own)));
      done(std::make_shared<RelaySocket>(ends[1]), DownEvidence::kUnreachable);
    });
  });
}

// ---- what the searches say ---------------------------------------------------------------------

template <class Work>
void Relay::Impl::Decide(Work work) {
  RelayActions actions;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    work(options_.now(), actions);
  }
  for (const RelayAction& action : actions) {
    std::visit([this](const auto& one) { this->Do(one); }, action);
  }
  ArmTimer();
}

void Relay::Impl::ArmTimer() {
  const Time next = [&] {
    const std::lock_guard lock(mutex_);
    return searches_.NextDeadline();
  }();
  if (next.infinite()) return;  // an earlier one that is still armed finds nothing to do
  const int64_t wait = std::max<int64_t>(0, (next - options_.now()).nanoseconds());
  timer_.expires_after(std::chrono::nanoseconds(wait));
  timer_.async_wait([this](std::error_code error) {
    if (!error) Decide([&](Time now, RelayActions& out) { searches_.OnTimer(now, out); });
  });
}

void Relay::Impl::Do(const RelayDial& action) {
  const auto it = sessions_.find(action.question);
  if (it == sessions_.end()) return;
  const uint64_t id = action.question;
  const auto socket = it->second.dial = std::make_shared<asio::ip::tcp::socket>(loop_);
  const std::string endpoint =
      options_.dial_at ? options_.dial_at(action.endpoint) : action.endpoint;
  const size_t colon = endpoint.rfind(':');
  std::string host = endpoint.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  const std::string port = colon == std::string::npos ? "" : endpoint.substr(colon + 1);
  const auto connect = [this, id, socket](const asio::ip::tcp::endpoint& to) {
    socket->async_connect(to, [this, id, socket](std::error_code error) { OnDialed(id, error); });
  };
  std::error_code not_numeric;
  const auto address = asio::ip::make_address(host, not_numeric);
  if (!not_numeric) {
    return connect({address, static_cast<uint16_t>(std::strtoul(port.c_str(), nullptr, 10))});
  }
  // A name may lead elsewhere by now than where the certificate was found.
  asio::post(loop_, [this, id, not_numeric] { OnDialed(id, not_numeric); });
}

void Relay::Impl::Do(const RelayProve& action) {
  std::function<void(const Contact&)> prover;
  {
    const std::lock_guard lock(mutex_);
    prover = provers_[action.port];
  }
  if (prover) return prover(action.end);
  asio::post(loop_, [this, endpoint = action.end.endpoint] {
    Decide([&](Time now, RelayActions& out) {
      searches_.OnProof(now, endpoint, DownEvidence::kUnreachable, out);
    });
  });
}

void Relay::Impl::SetProver(RelayPort port, std::function<void(const Contact&)> prover) {
  const std::lock_guard lock(mutex_);
  provers_[port] = std::move(prover);
}

void Relay::Impl::OnProof(const std::string& endpoint, DownEvidence evidence) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || !searches_.proving()) return;
  }
  asio::post(loop_, [this, endpoint, evidence] {
    Decide([&](Time now, RelayActions& out) { searches_.OnProof(now, endpoint, evidence, out); });
  });
}

void Relay::Impl::OnDialed(uint64_t id, std::error_code error) {
  if (!sessions_.contains(id)) return;  // too late: its socket goes
  const DownEvidence evidence = error == asio::error::connection_refused
                                    ? DownEvidence::kRefused
                                    : DownEvidence::kUnreachable;
  Decide([&](Time now, RelayActions& out) {
    if (!error) return searches_.OnConnected(id, out);
    searches_.OnDialFailed(now, id, evidence, out);
  });
}

void Relay::Impl::Do(const RelayAsk& action) {
  const auto it = sessions_.find(action.question);
  if (it == sessions_.end()) return;
  {
    const std::lock_guard lock(mutex_);
    ++asked_;
  }
  const auto call = std::make_shared<AskedCall>(asked_host_, ChannelTo(action.neighbour));
  it->second.asks[action.neighbour.id] = call;
  call->Ask(action.ask, [this, id = action.question, from = action.neighbour.id](RelayAnswer a) {
    Decide([&](Time now, RelayActions& out) { searches_.OnAnswer(now, id, from, a, out); });
  });
}

std::shared_ptr<grpc::Channel> Relay::Impl::ChannelTo(const Contact& neighbour) {
  const auto* known = channels_.Find(neighbour.id);
  if (known != nullptr && known->first == neighbour.endpoint) return known->second;
  auto channel = options_.channel_to(neighbour.endpoint);
  (void)channels_.Put(neighbour.id, {neighbour.endpoint, channel});  // calls keep theirs
  return channel;
}

void Relay::Impl::Do(const RelayJoin& action) {
  const auto it = sessions_.find(action.question);
  if (it == sessions_.end()) return;
  Session& session = it->second;
  std::shared_ptr<RelayLeg> right;
  if (action.via.none()) {
    std::error_code ignored;
    session.dial->set_option(asio::ip::tcp::no_delay(true), ignored);
    right = std::make_shared<SocketLeg>(SocketLeg::Socket(std::move(*session.dial)));
  } else {
    right = session.asks.at(action.via);
  }
  Drop(session, &action.via);
  session.right = right;
  const auto reply = std::exchange(session.reply, nullptr);
  reply(RelayAnswer::kFound, [this, id = action.question, right](std::shared_ptr<RelayLeg> left) {
    Join(id, std::move(left), right);
  });
}

void Relay::Impl::Join(uint64_t id, std::shared_ptr<RelayLeg> left,
                       const std::shared_ptr<RelayLeg>& right) {
  const auto it = sessions_.find(id);
  if (left == nullptr || it == sessions_.end()) {
    if (left != nullptr) left->Abort();
    right->Abort();
    return Gone(id);
  }
  RelayPipe::Events events;
  events.on_answer = [this] { WithPaths([](RelayPaths& paths) { paths.OnCarried(); }); };
  events.on_end = [this, id] { Gone(id); };
  it->second.pipe =
      std::make_shared<RelayPipe>(loop_, std::move(left), right, metrics_.bytes, std::move(events));
  it->second.pipe->Start();
}

void Relay::Impl::Do(const RelayNo& action) {
  const auto it = sessions_.find(action.question);
  if (it == sessions_.end()) return;
  Session session = std::move(it->second);
  sessions_.erase(it);
  Drop(session, nullptr);
  session.reply(action.answer, nullptr);
}

// Ends what a question has started and nobody waits for any more.
void Relay::Impl::Drop(Session& session, const PeerId* keep) {
  if (session.dial) {
    std::error_code ignored;
    session.dial->close(ignored);
  }
  for (const auto& [neighbour, call] : session.asks) {
    if (keep == nullptr || neighbour != *keep) call->Abort();
  }
  session.dial = nullptr;
  session.asks.clear();
  if (keep == nullptr && session.right) session.right->Abort();
}

void Relay::Impl::Gone(uint64_t id) {
  const auto it = sessions_.find(id);
  if (it != sessions_.end()) {
    Drop(it->second, nullptr);
    sessions_.erase(it);
  }
  const std::lock_guard lock(mutex_);
  searches_.OnGone(id);
}

}  // namespace crowdsurf::dht
