#include "coordinator-free-dht/core/relay/relay_searches.h"

#include <algorithm>
#include <utility>

namespace crowdsurf::dht {
namespace {

// Of two that say no, what both together say: death is sure; that all were refused says something
// only when all were; nothing says nothing.
RelayAnswer Stronger(RelayAnswer a, RelayAnswer b) {
  if (a == RelayAnswer::kNothing) return b;
  if (b == RelayAnswer::kNothing) return a;
  if (a == RelayAnswer::kDead || b == RelayAnswer::kDead) return RelayAnswer::kDead;
  return a == b ? a : RelayAnswer::kUnreachable;
}

}  // namespace

RelaySearches::RelaySearches(const RelayConfig& config, const PeerId& self, RelayPaths& paths,
                             RelayMetrics& metrics, Rng rng)
    : config_(config),
      self_(self),
      paths_(paths),
      metrics_(metrics),
      rng_(rng),
      numbers_(config.numbers) {}

void RelaySearches::OnWanted(Time now, uint64_t id, const std::string& endpoint,
                             RelayActions& out) {
  if (!Admit(id, out)) return metrics_.unreachable.Add();
  Search search;
  search.question = {.endpoint = endpoint, .number = rng_.Next(), .hops = 0, .asker = self_};
  search.own = true;
  // So that a neighbour that asks back finds its own search and stops.
  (void)Heard(now, search.question.number);
  Start(now, id, std::move(search), out);
}

void RelaySearches::OnQuestion(Time now, uint64_t id, const RelayQuestion& question,
                               RelayActions& out) {
  if (question.hops == 0 || question.hops > config_.hops) {
    metrics_.Refuse(RelayRefusal::kHops);
    out.emplace_back(RelayNo{id, RelayAnswer::kUnreachable});
    return;
  }
  if (!Admit(id, out)) return;
  if (Heard(now, question.number)) {
    metrics_.Refuse(RelayRefusal::kCircle);
    out.emplace_back(RelayNo{id, RelayAnswer::kNothing});
    return;
  }
  Search search;
  search.question = question;
  // It asked because it could not reach the end, and would only ask back.
  search.asked.insert(question.asker);
  Start(now, id, std::move(search), out);
}

bool RelaySearches::Admit(uint64_t id, RelayActions& out) {
  const bool many = searches_.size() >= config_.searches;
  if (!many && carried() < config_.carried) return true;
  metrics_.Refuse(many ? RelayRefusal::kSearches : RelayRefusal::kConnections);
  out.emplace_back(RelayNo{id, RelayAnswer::kUnreachable});
  return false;
}

// Remembers the number; true when it was heard of before.
bool RelaySearches::Heard(Time now, uint64_t number) {
  const Time* until = numbers_.Find(number);
  if (until != nullptr && now < *until) return true;
  // What is forgotten too early is worked on twice, within the bounds of a search.
  if (!numbers_.Put(number, now + config_.patience + config_.patience)) metrics_.forgotten.Add();
  return false;
}

void RelaySearches::Start(Time now, uint64_t id, Search started, RelayActions& out) {
  Search& search = searches_.emplace(id, std::move(started)).first->second;
  metrics_.connections.Set(static_cast<double>(carried()));
  search.until = now + config_.patience;
  // The way that worked last is tried alone: it costs one question instead of a flood.
  const auto via = paths_.Route(search.question.endpoint);
  if (via && !search.asked.contains(*via) && search.question.hops < config_.hops) {
    search.routed = true;
    return Ask(id, search, *via, out);
  }
  Begin(now, id, search, out);
  EndWhenOver(now, id, out);
}

void RelaySearches::Begin(Time now, uint64_t id, Search& search, RelayActions& out) {
  if (search.own) return AskOthers(now, id, search, out);  // its dial has failed already
  const std::string& endpoint = search.question.endpoint;
  const PeerId* peer = paths_.PeerOf(endpoint);
  if (peer == nullptr) {
    metrics_.Refuse(RelayRefusal::kUnknownPeer);
    return AskOthers(now, id, search, out);
  }
  search.dialing = true;
  // Most ends answer a dial at once; a way through others would only be longer.
  search.ask_at = now + config_.head_start;
  if (paths_.Proved(now, endpoint)) {
    out.emplace_back(RelayDial{id, endpoint});
    return;
  }
  search.proving = true;
  ++proving_;
  out.emplace_back(RelayProve{id, {*peer, endpoint}, paths_.PortOf(endpoint)});
}

void RelaySearches::OnProof(Time now, const std::string& endpoint, DownEvidence evidence,
                            RelayActions& out) {
  const bool proved = paths_.Proved(now, endpoint);
  std::vector<uint64_t> asked;
  for (auto& [id, search] : searches_) {
    if (!search.proving || search.question.endpoint != endpoint) continue;
    search.proving = false;
    --proving_;
    asked.push_back(id);
  }
  // Not in the loop above: a failed dial may erase its search from that map.
  for (const uint64_t id : asked) {
    if (proved) {
      out.emplace_back(RelayDial{id, endpoint});
    } else {
      metrics_.Refuse(RelayRefusal::kUnproved);
      OnDialFailed(now, id, evidence, out);
    }
  }
}

void RelaySearches::Erase(uint64_t id) {
  const auto it = searches_.find(id);
  if (it == searches_.end()) return;
  // The transports report proofs only while somebody waits for one.
  if (it->second.proving) --proving_;
  searches_.erase(it);
}

void RelaySearches::AskOthers(Time now, uint64_t id, Search& search, RelayActions& out) {
  search.ask_at = Time::Infinite();
  if (search.question.hops >= config_.hops) {
    metrics_.Refuse(RelayRefusal::kHops);
    return;
  }
  const PeerId* end = paths_.PeerOf(search.question.endpoint);
  const size_t most = search.wide ? config_.asked_at_once : config_.asked_first;
  for (const auto& [neighbour, endpoint] : paths_.neighbours()) {
    // The end itself cannot carry to itself, and nobody is asked twice.
    if (search.asked.contains(neighbour) || (end != nullptr && *end == neighbour)) continue;
    if (search.waiting.size() >= most) {
      if (!search.wide) search.ask_at = now + config_.head_start;
      return;
    }
    Ask(id, search, neighbour, out);
  }
}

void RelaySearches::Ask(uint64_t id, Search& search, const PeerId& neighbour, RelayActions& out) {
  search.asked.insert(neighbour);
  search.waiting.insert(neighbour);
  RelayQuestion ask = search.question;
  ++ask.hops;
  ask.asker = self_;
  metrics_.questions.Add();
  out.emplace_back(RelayAsk{id, {neighbour, paths_.neighbours().at(neighbour)}, std::move(ask)});
}

void RelaySearches::OnConnected(uint64_t id, RelayActions& out) {
  const auto it = searches_.find(id);
  if (it != searches_.end() && it->second.dialing) Join(id, PeerId(), out);
}

void RelaySearches::OnDialFailed(Time now, uint64_t id, DownEvidence evidence, RelayActions& out) {
  const auto it = searches_.find(id);
  if (it == searches_.end() || !it->second.dialing) return;
  Search& search = it->second;
  search.dialing = false;
  // The address answered lately and does not now: bytes of others need a new proof.
  paths_.OnUnproved(search.question.endpoint);
  const RelayAnswer judged = paths_.Judge(now, search.question.endpoint, evidence);
  // This agent had met the peer itself: no neighbour knows better.
  if (judged == RelayAnswer::kDead) return SayNo(now, id, judged, out);
  search.strongest = Stronger(search.strongest, judged);
  AskOthers(now, id, search, out);
  EndWhenOver(now, id, out);
}

void RelaySearches::OnAnswer(Time now, uint64_t id, const PeerId& from, RelayAnswer answer,
                             RelayActions& out) {
  const auto it = searches_.find(id);
  // An answer that nobody waits for, or a second one, changes nothing.
  if (it == searches_.end() || it->second.waiting.erase(from) == 0) return;
  Search& search = it->second;
  if (answer == RelayAnswer::kFound) {
    paths_.Remember(search.question.endpoint, from);
    return Join(id, from, out);
  }
  // An agent that had met the peer knows; the others' answers cannot make it live.
  if (answer == RelayAnswer::kDead) return SayNo(now, id, answer, out);
  search.strongest = Stronger(search.strongest, answer);
  if (std::exchange(search.routed, false)) {
    paths_.ForgetRoute(search.question.endpoint);
    Begin(now, id, search, out);
  } else {
    search.wide = true;
    AskOthers(now, id, search, out);
  }
  EndWhenOver(now, id, out);
}

void RelaySearches::EndWhenOver(Time now, uint64_t id, RelayActions& out) {
  const auto it = searches_.find(id);
  if (it == searches_.end() || it->second.dialing || !it->second.waiting.empty()) return;
  SayNo(now, id, it->second.strongest, out);
}

void RelaySearches::Join(uint64_t id, const PeerId& via, RelayActions& out) {
  const auto it = searches_.find(id);
  if (it->second.own) metrics_.found.Add();
  Erase(id);
  carried_.insert(id);
  out.emplace_back(RelayJoin{id, via});
}

void RelaySearches::SayNo(Time now, uint64_t id, RelayAnswer answer, RelayActions& out) {
  const auto it = searches_.find(id);
  const bool own = it->second.own;
  if (own) {
    // Only where no firewall was ever seen does a refusal by all mean that the process is gone.
    const bool dead =
        answer == RelayAnswer::kDead || (answer == RelayAnswer::kRefused && !paths_.firewall());
    answer = dead ? RelayAnswer::kDead : RelayAnswer::kUnreachable;
    (dead ? metrics_.dead : metrics_.unreachable).Add();
    paths_.OnUnreachable(now, it->second.question.endpoint);
  } else if (it->second.routed) {
    paths_.ForgetRoute(it->second.question.endpoint);
  }
  Erase(id);
  metrics_.connections.Set(static_cast<double>(carried()));
  out.emplace_back(RelayNo{id, answer});
}

void RelaySearches::OnGone(uint64_t id) {
  Erase(id);
  carried_.erase(id);
  metrics_.connections.Set(static_cast<double>(carried()));
}

void RelaySearches::OnTimer(Time now, RelayActions& out) {
  std::vector<uint64_t> late;
  for (auto& [id, search] : searches_) {
    if (now >= search.until) {
      late.push_back(id);
    } else if (now >= search.ask_at) {
      // Its own dial's head start is over, or that of the few that were asked.
      search.wide = search.wide || !search.waiting.empty();
      AskOthers(now, id, search, out);
    }
  }
  // Who did not answer in time may be whoever knows.
  for (const uint64_t id : late) SayNo(now, id, RelayAnswer::kUnreachable, out);
}

Time RelaySearches::NextDeadline() const {
  Time next = Time::Infinite();
  for (const auto& [id, search] : searches_) next = std::min({next, search.until, search.ask_at});
  return next;
}

}  // namespace crowdsurf::dht
