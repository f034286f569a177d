// Relay: what the searches want done.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/endpoint.h"
#include "coordinator-free-dht/edge/relay_impl.h"

namespace crowdsurf::dht {

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
  const auto to = ParseEndpoint(endpoint);
  if (to && to->kind != Endpoint::Kind::kName) {
    const asio::ip::tcp::endpoint at(asio::ip::make_address(to->host), to->port);
    return socket->async_connect(
        at, [this, id, socket](std::error_code error) { OnDialed(id, error); });
  }
  // A name may lead elsewhere by now than where the certificate was found.
  asio::post(loop_, [this, id] { OnDialed(id, asio::error::host_not_found); });
}

void Relay::Impl::Do(const RelayProve& action) {
  std::function<void(const Contact&)> prover;
  {
    const std::lock_guard lock(mutex_);
    prover = provers_[action.port];
  }
  // Out of the lock: it dials, and may come back at once with a proof.
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
    // Nearly all dials prove something that nobody asked for: the relay's thread sleeps on.
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
  // The peer may have another address by now.
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
    // TLS records come in pieces; waiting to fill a packet would add a round trip to each.
    session.dial->set_option(asio::ip::tcp::no_delay(true), ignored);
    right = std::make_shared<SocketLeg>(SocketLeg::Socket(std::move(*session.dial)));
  } else {
    right = session.asks.at(action.via);
  }
  // The race is over: the other ways are cut before any of them carries a byte.
  Drop(session, &action.via);
  session.right = right;
  const auto reply = std::exchange(session.reply, nullptr);
  reply(RelayAnswer::kFound, [this, id = action.question, right](std::shared_ptr<RelayLeg> left) {
    Join(id, std::move(left), right);
  });
}

void Relay::Impl::Do(const RelayNo& action) {
  const auto it = sessions_.find(action.question);
  if (it == sessions_.end()) return;
  Session session = std::move(it->second);
  // Before the answer, which may ask for the same end again.
  sessions_.erase(it);
  Drop(session, nullptr);
  session.reply(action.answer, nullptr);
}

}  // namespace crowdsurf::dht
