#include "coordinator-free-dht/core/relay/relay_paths.h"

namespace crowdsurf::dht {

RelayPaths::RelayPaths(const RelayConfig& config, RelayMetrics& metrics)
    : config_(config),
      metrics_(metrics),
      ends_(config.ends),
      proved_(config.ends),
      met_(config.ends),
      hidden_(config.ends),
      routes_(config.routes),
      failures_(config.failures),
      dead_(config.failures) {}

void RelayPaths::OnStreamUp(const Contact& peer, StreamPath path) {
  // Both ends of a stream know the other's address first-hand, and others may ask for it.
  Introduce(peer.id, peer.endpoint, RelayPort::kPeer);
  failures_.Erase(peer.endpoint);
  dead_.Erase(peer.id);
  if (path == StreamPath::kCarried) {
    // Somebody had to carry it: from now on a refused dial may be a firewall's word.
    firewall_ = true;
    // A neighbour's second stream may be carried; dials of it still go straight.
    if (!neighbours_.contains(peer.id)) Keep(hidden_, peer.id, true);
    return;
  }
  neighbours_[peer.id] = peer.endpoint;
  Keep(met_, peer.id, Time());
  hidden_.Erase(peer.id);
  routes_.Erase(peer.endpoint);
}

void RelayPaths::OnStreamDown(const PeerId& peer) {
  neighbours_.erase(peer);
  // Ways through a neighbour that went lead nowhere, and asking it would cost a search's patience.
  routes_.EraseIf([&](const PeerId& via) { return via == peer; });
  // Its process may have gone, and somebody else may listen at the address now.
  proved_.EraseIf([&](const Proof& proof) { return proof.peer == peer; });
}

void RelayPaths::Introduce(const PeerId& peer, const std::string& endpoint, RelayPort port) {
  if (!endpoint.empty()) Keep(ends_, endpoint, {peer, port});
}

void RelayPaths::OnProved(Time now, const Contact& end) {
  Keep(proved_, end.endpoint, {end.id, now});
}

const PeerId* RelayPaths::PeerOf(const std::string& endpoint) const {
  const End* end = ends_.Find(endpoint);
  return end == nullptr ? nullptr : &end->peer;
}

bool RelayPaths::Proved(Time now, const std::string& endpoint) const {
  const Proof* proof = proved_.Find(endpoint);
  const PeerId* peer = PeerOf(endpoint);
  // The peer is compared, too: an address that was introduced anew is not proved by its old owner.
  return proof != nullptr && peer != nullptr && proof->peer == *peer &&
         now - proof->at < config_.proof_lives;
}

bool RelayPaths::Via(const Contact& to) const {
  // A neighbour can be dialed, as its stream proves.
  if (neighbours_.contains(to.id)) return false;
  return Route(to.endpoint).has_value() || (hidden_.Find(to.id) != nullptr && !neighbours_.empty());
}

bool RelayPaths::Met(Time now, const PeerId& peer) const {
  const Time* failed = met_.Find(peer);
  return failed != nullptr && (failed->unset() || now - *failed < config_.death_lives);
}

AfterFailure RelayPaths::OnDialFailed(Time now, const Contact& to, DownEvidence evidence) {
  if (Met(now, to.id)) {
    Time* since = met_.Find(to.id);
    // The first failure counts: further ones must not put off the time when it may be a firewall.
    if (since->unset()) *since = now;
    return AfterFailure::kFinal;
  }
  const bool refused = evidence == DownEvidence::kRefused;
  const AfterFailure as_it_is = refused && firewall_ ? AfterFailure::kSoft : AfterFailure::kFinal;
  const Time* until = failures_.Find(to.endpoint);
  // Everybody was asked a moment ago; asking again at each dial would be a flood.
  if (until != nullptr && now < *until) return as_it_is;
  // The peer itself does not help to reach it, should it be a neighbour.
  const size_t others = neighbours_.size() - neighbours_.count(to.id);
  return others > 0 ? AfterFailure::kRelay : as_it_is;
}

RelayAnswer RelayPaths::Judge(Time now, const std::string& endpoint, DownEvidence evidence) const {
  if (evidence != DownEvidence::kRefused) return RelayAnswer::kUnreachable;
  const PeerId* peer = PeerOf(endpoint);
  // Its dials were accepted here before, so no firewall stands between.
  if (peer != nullptr && Met(now, *peer)) return RelayAnswer::kDead;
  return firewall_ ? RelayAnswer::kUnreachable : RelayAnswer::kRefused;
}

std::optional<PeerId> RelayPaths::Route(const std::string& endpoint) const {
  const PeerId* via = routes_.Find(endpoint);
  // The neighbour may have gone down since without its routes having been looked at.
  if (via == nullptr || !neighbours_.contains(*via)) return std::nullopt;
  return *via;
}

void RelayPaths::Remember(const std::string& endpoint, const PeerId& neighbour) {
  failures_.Erase(endpoint);
  Keep(routes_, endpoint, neighbour);
}

void RelayPaths::OnCarriedFailed(Time now, const Contact& to) {
  OnUnreachable(now, to.endpoint);
  hidden_.Erase(to.id);
}

void RelayPaths::OnDead(Time now, const PeerId& peer) {
  Keep(dead_, peer, now + config_.refusal_lives);
}

bool RelayPaths::Dead(Time now, const PeerId& peer) const {
  const Time* until = dead_.Find(peer);
  return until != nullptr && now < *until;
}

void RelayPaths::OnUnreachable(Time now, const std::string& endpoint) {
  routes_.Erase(endpoint);
  Keep(failures_, endpoint, now + config_.failure_lives);
  if (const PeerId* peer = PeerOf(endpoint)) hidden_.Erase(*peer);
}

}  // namespace crowdsurf::dht
