// Links of an I/O thread: dialling, the one reconnect, and what a failure means.

#include "base/check.h"
#include "base/endpoint.h"
#include "worker/edge/tensor/tensor_asio.h"
#include "worker/edge/tensor/tensor_io_thread.h"

namespace crowdsurf::worker {
namespace {

constexpr int kMaxRedials = 3;
constexpr std::chrono::milliseconds kRedialGap{15};  // none before the first

}  // namespace

void TensorTransport::Impl::IoThread::Wake(const PeerId& peer, const std::string& endpoint,
                                           const std::shared_ptr<TensorOutbox>& outbox) {
  // Closed: the link was dropped since, and a Send made another outbox, maybe for another thread.
  if (all_.stopped_ || outbox->closed()) return;
  const auto [it, fresh] = links_.try_emplace(peer);
  Link& link = it->second;
  if (!fresh) {
    CHECK(link.outbox == outbox);  // a peer has one open outbox at a time
    Touch(link, peer);
    if (link.connection) link.connection->Flush();
    return;
  }
  link.endpoint = endpoint;
  link.outbox = outbox;
  recent_.push_front(peer);
  link.used = recent_.begin();
  // The peer that was sent to longest ago goes. What waits for it is dropped and counted.
  if (links_.size() > all_.Share(all_.options_.dialed)) {
    const PeerId longest_ago = recent_.back();  // DropLink erases that entry
    DropLink(longest_ago, Clock::duration::zero(), DownEvidence::kUnreachable);
  }
  Dial(peer);
}

void TensorTransport::Impl::IoThread::Prove(const dht::Contact& end) {
  if (all_.stopped_) return;
  const auto it = links_.find(end.id);
  const bool here = it != links_.end() && it->second.endpoint == end.endpoint &&
                    it->second.connection && !it->second.carried;
  if (here && it->second.connection->open()) return all_.relay_->OnProved(end);
  if (here) return;  // its end follows
  if (it != links_.end() || !all_.Probe(end.id, end.endpoint)) {
    all_.relay_->OnUnproved(
        end.endpoint, all_.JustDied(end.id) ? DownEvidence::kRefused : DownEvidence::kUnreachable);
  }
}

void TensorTransport::Impl::IoThread::Touch(Link& link, const PeerId& peer) {
  recent_.erase(link.used);
  recent_.push_front(peer);
  link.used = recent_.begin();
}

void TensorTransport::Impl::IoThread::Dial(const PeerId& peer) {
  Link& link = links_.at(peer);
  link.carried = all_.relay_ != nullptr && all_.relay_->Via({peer, link.endpoint});
  Connect(peer, link);
}

void TensorTransport::Impl::IoThread::DialThroughRelay(const PeerId& peer) {
  Link& link = links_.at(peer);
  link.carried = true;
  Connect(peer, link);
}

void TensorTransport::Impl::IoThread::Connect(const PeerId& peer, Link& link) {
  link.other_peer = link.dialed = false;
  auto holder = std::make_shared<TensorConnection*>(nullptr);  // tells the attempts apart
  TensorConnection::Events events;
  events.on_open = [this, peer](const TensorHello& hello) {
    Link& opened = links_.at(peer);
    opened.other_peer = hello.id != peer;
    if (opened.other_peer) return false;
    opened.was_open = true;
    opened.redials = 0;
    if (all_.relay_ != nullptr && !opened.carried) all_.relay_->OnProved({peer, opened.endpoint});
    all_.metrics_.opened.Add();
    all_.metrics_.connections.Add(1);
    return true;
  };
  // A dialled connection only carries frames away; the accepting side has nothing to say on it.
  events.on_frame = [this](const TensorHeader&, const TensorPayload&) {
    all_.metrics_.dropped.Add();
    return true;
  };
  events.on_sent = [this](size_t bytes) {
    all_.metrics_.sent_bytes.Add(static_cast<double>(bytes));
  };
  events.on_drained = [this, peer] {
    (void)all_.host_.Post(
        [&all = all_, keep = all_.shared_from_this(), peer](Time now, WallTime wall) {
          if (!all.stopped_) all.handlers_.on_drained(now, wall, peer);
        });
  };
  events.on_impostor = [this] { all_.CountRefused(TokenRefusal::kImpostor); };
  events.on_end = [this, peer, holder](TensorEnding ending, const std::string& why) {
    OnLinkEnd(peer, *holder, ending, why);
  };
  const TlsCredentials* credentials = Credentials();
  link.connection = std::make_shared<TensorConnection>(asio::ip::tcp::socket(io_), credentials,
                                                       ConnectionSettings(), std::move(events));
  *holder = link.connection.get();
  if (all_.options_.tokens) return AskForToken(peer, link);
  DialOut(peer, link);
}

void TensorTransport::Impl::IoThread::DialOut(const PeerId& peer, Link& link) {
  link.dialed = true;
  if (link.carried) return DialCarried(peer, link.connection, link.outbox);
  DialAddress(peer, link.connection, link.outbox);
}

void TensorTransport::Impl::IoThread::DialCarried(const PeerId& peer, const Connection& connection,
                                                  const std::shared_ptr<TensorOutbox>& outbox) {
  connection->ExpectSocket(outbox);
  // Neither is kept alive: the relay may outlive them with this still in its queue.
  all_.relay_->Connect(links_.at(peer).endpoint,
                       [this, weak = all_.weak_from_this(), waits = std::weak_ptr(connection)](
                           const std::shared_ptr<dht::RelaySocket>& socket, DownEvidence evidence) {
                         const auto alive = weak.lock();
                         if (alive == nullptr) return;
                         Post([waits, socket, evidence] {
                           const Connection waiting = waits.lock();
                           if (waiting == nullptr || waiting->ended()) return;
                           if (socket != nullptr) return waiting->UseSocket(socket->Take());
                           const bool dead = evidence == DownEvidence::kRefused;
                           waiting->End(dead ? TensorEnding::kRefused : TensorEnding::kFailed,
                                        "nobody can dial it");
                         });
                       });
}

void TensorTransport::Impl::IoThread::DialAddress(const PeerId& peer, const Connection& connection,
                                                  const std::shared_ptr<TensorOutbox>& outbox) {
  const auto to = ParseEndpoint(links_.at(peer).endpoint);
  if (!to) {
    connection->ExpectSocket(outbox);
    return connection->End(TensorEnding::kFailed, "its address is none");
  }
  if (to->kind != Endpoint::Kind::kName) {
    return connection->Dial({asio::ip::make_address(to->host), to->port}, outbox);
  }
  // Looked up on Asio's own thread, which may wait for DNS.
  resolver_.async_resolve(
      to->host, std::to_string(to->port), asio::ip::tcp::resolver::numeric_service,
      [connection, outbox](std::error_code failed,
                           const asio::ip::tcp::resolver::results_type& results) {
        if (connection->ended()) return;
        if (failed || results.empty()) {
          return connection->End(TensorEnding::kFailed, "name: " + failed.message());
        }
        connection->Dial(results.begin()->endpoint(), outbox);
      });
}

void TensorTransport::Impl::IoThread::OnLinkEnd(const PeerId& peer,
                                                const TensorConnection* connection,
                                                TensorEnding ending, const std::string& why) {
  CountEnd(ending, why, &peer);
  const auto it = links_.find(peer);
  // An attempt that was replaced says nothing of the link that took its place.
  if (all_.stopped_ || it == links_.end() || it->second.connection.get() != connection) return;
  Link& link = it->second;
  link.connection.reset();
  if (all_.relay_ != nullptr && !link.carried) {
    const bool refused = ending == TensorEnding::kRefused;
    all_.relay_->OnUnproved(link.endpoint,
                            refused ? DownEvidence::kRefused : DownEvidence::kUnreachable);
  }
  const bool lost = std::exchange(link.was_open, false);
  if (lost) {
    all_.metrics_.connections.Add(-1);
    // Closed in good order, with nothing to send: no sign of death, and no reason to dial.
    if (ending == TensorEnding::kGoodbye && link.outbox->empty()) {
      return DropLink(peer, Clock::duration::zero(), DownEvidence::kUnreachable);
    }
  }
  // It may be alive after all: try once more, now. A process that is just being killed may still
  // answer the first try and close it, so that one is repeated.
  const bool half_dead =
      link.redials > 0 && link.redials < kMaxRedials && ending == TensorEnding::kFailed;
  if (lost || half_dead) return Redial(peer);
  // A refusal, or another peer at its address: that process is dead (base/down_evidence.h).
  DownEvidence evidence = ending == TensorEnding::kRefused || link.other_peer
                              ? DownEvidence::kRefused
                              : DownEvidence::kUnreachable;
  // Without a token nothing was dialled, which says nothing of the way there. And where a plain
  // Hello went out there is a way: who closes then has refused it.
  const bool unreachable = link.dialed && !connection->said_plain_hello() &&
                           (ending == TensorEnding::kRefused || ending == TensorEnding::kFailed);
  if (all_.relay_ != nullptr && link.carried && link.dialed) {
    all_.relay_->OnCarriedFailed({peer, link.endpoint});
  } else if (all_.relay_ != nullptr && unreachable) {
    const auto after = all_.relay_->OnDialFailed({peer, link.endpoint}, evidence);
    if (after == dht::AfterFailure::kRelay) return DialThroughRelay(peer);
    if (after == dht::AfterFailure::kSoft) evidence = DownEvidence::kUnreachable;
  }
  DropLink(peer, std::chrono::nanoseconds(all_.options_.redial_after.nanoseconds()), evidence);
  ReportDown(peer, evidence);
}

void TensorTransport::Impl::IoThread::Redial(const PeerId& peer) {
  Link& link = links_.at(peer);
  // After 0, 15 and 30 ms. The handler owns its timer.
  auto timer = std::make_shared<asio::steady_timer>(io_, link.redials * kRedialGap);
  ++link.redials;
  timer->async_wait([this, peer, timer](std::error_code) {
    const auto it = links_.find(peer);
    if (!all_.stopped_ && it != links_.end() && !it->second.connection) Dial(peer);
  });
}

void TensorTransport::Impl::IoThread::DropLink(const PeerId& peer, Clock::duration refuse_for,
                                               DownEvidence evidence) {
  const auto it = links_.find(peer);
  if (it == links_.end()) return;
  Link link = std::move(it->second);
  recent_.erase(link.used);
  links_.erase(it);
  // Off the lists before End, which calls OnLinkEnd. A Send that holds this outbox finds it closed.
  all_.metrics_.dropped.Add(static_cast<double>(link.outbox->Close()));
  all_.Unlink(peer, link.outbox, index_, refuse_for, evidence);
  if (!link.connection) return;
  if (link.was_open) all_.metrics_.connections.Add(-1);
  link.connection->End(TensorEnding::kGoodbye, "forgotten");
}

void TensorTransport::Impl::IoThread::ReportDown(const PeerId& peer, DownEvidence evidence) {
  all_.log_.Debug("tensor peer down",
                  {{"peer", peer.brief()}, {"refused", evidence == DownEvidence::kRefused}});
  all_.HandOverAll();  // what came from it was before its death
  (void)all_.host_.Post(
      [&all = all_, keep = all_.shared_from_this(), peer, evidence](Time now, WallTime wall) {
        if (!all.stopped_) all.handlers_.on_down(now, wall, peer, evidence);
      });
}

}  // namespace crowdsurf::worker
