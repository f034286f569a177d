#include "tests/unit/worker_core/world/peer_world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace crowdsurf::worker {

void PeerWorld::NodeSink::Write(LogLevel, std::string_view module, std::string_view message,
                                std::initializer_list<LogField> fields) {
  if (std::getenv("CROWDSURF_TEST_LOG") == nullptr) return;
  std::string line = std::string(module) + ": " + std::string(message);
  for (const LogField& f : fields) line += " " + std::string(f.key) + "=" + f.value;
  std::fprintf(stderr, "%.6f w%zu %s\n", world_.now().seconds(), index_, line.c_str());
}

size_t PeerWorld::Add(Duration trainer_delay, int island,
                      std::optional<RestoredCheckpoint> restored) {
  const size_t i = nodes_.size();
  nodes_.push_back(std::make_unique<Node>());
  Node& n = *nodes_[i];
  n.island = island;
  std::array<uint8_t, 32> id{};
  Rng ids = rng_.Fork("id" + std::to_string(i));
  for (uint8_t& b : id) b = static_cast<uint8_t>(ids.Next());
  n.config.job = "job";
  n.config.worker = "w" + std::to_string(i);
  n.config.id = PeerId(id);
  n.config.peer_endpoint = "h" + std::to_string(i) + ":1";
  n.config.tensor_endpoint = "h" + std::to_string(i) + ":2";
  n.config.started_unix_ms = 1'000 + static_cast<int64_t>(now_.seconds() * 1e3);
  n.config.averaging = averaging_;
  n.config.chunk_elements = 8;
  for (const Region r : {Region::kOutbox, Region::kInboxA, Region::kInboxB})
    n.regions[r].assign(elements_, 0.0);
  n.x.assign(elements_, 0.0);
  for (size_t e = 0; e < elements_; ++e) n.x[e] = static_cast<double>(e % 7);
  index_[n.config.id] = i;
  n.sink = std::make_unique<NodeSink>(*this, i);
  n.peer = std::make_unique<Peer>(n.config, rng_.Fork("peer" + std::to_string(i)),
                                  Logger(n.sink.get(), "peer", LogLevel::kDebug), n.metrics);
  Input(i, [&](Actions& out) { n.peer->Start(now_, out); });
  At(trainer_delay, [this, i, restored] {
    if (Alive(i) && restored) Local(i, *restored);
    if (Alive(i)) Local(i, TrainerRegistered{Sha256(AsBytes("table")), elements_, true});
  });
  return i;
}

void PeerWorld::Local(size_t i, const LocalEvent& event) {
  Input(i, [&](Actions& out) { nodes_[i]->peer->OnLocal(now_, event, out); });
}

void PeerWorld::Kill(size_t i) {
  nodes_[i]->alive = false;
  for (size_t j = 0; j < nodes_.size(); ++j) {
    if (j == i) continue;
    At(delay_, [this, i, j] {
      if (Alive(j))
        Input(j, [&](Actions& out) {
          nodes_[j]->peer->OnPeerDown(now_, nodes_[i]->config.id, DownEvidence::kRefused, out);
        });
    });
  }
}

void PeerWorld::RunFor(Duration d) {
  const Time end = now_ + d;
  while (!queue_.empty() && queue_.top().at <= end) {
    const Event event = queue_.top();
    queue_.pop();
    now_ = event.at;
    event.run();
    CHECK_LT(++events_, 20'000'000U);
  }
  now_ = end;
}

void PeerWorld::Slander(size_t at, size_t whom) {
  Input(at, [&](Actions& out) {
    nodes_[at]->peer->OnPeerDown(now_, nodes_[whom]->config.id, DownEvidence::kRefused, out);
  });
}

void PeerWorld::Tell(size_t at, size_t from, const Message& message) {
  Input(at, [&](Actions& out) {
    nodes_[at]->peer->OnMessage(now_, nodes_[from]->config.id, EncodeMessage(message), out);
  });
}

bool PeerWorld::Together() const {
  std::optional<ViewHash> hash;
  size_t live = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) live += Alive(i);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!Alive(i)) continue;
    const PeerSummary s = Summary(i);
    if (!s.view || s.view->members != live || (hash && *hash != s.view->hash)) return false;
    hash = s.view->hash;
  }
  return hash.has_value();
}

std::string PeerWorld::Describe() const {
  std::string text;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!Alive(i)) continue;
    const PeerSummary s = Summary(i);
    text += "\n  w" + std::to_string(i) + " " + NameOf(s.state) + " averaging " +
            std::to_string(s.averaging.value());
    if (s.view) text += " view " + s.view->hash.brief() + " of " + std::to_string(s.view->members);
  }
  return text;
}

std::optional<Duration> PeerWorld::UntilTogether(Duration most) {
  const Time start = now_;
  while (now_ - start < most) {
    RunFor(Milliseconds(5));
    if (Together()) return now_ - start;
  }
  return std::nullopt;
}

void PeerWorld::Schedule(size_t i) {
  Node& n = *nodes_[i];
  if (n.timer_set || !Alive(i)) return;
  const Time next = n.peer->NextDeadline();
  if (next.infinite()) return;
  n.timer_set = true;
  // Look again when the deadline comes: it may have moved; and not later than in 5 ms, because
  // it may have moved forward.
  const Time at = std::min(std::max(next, now_ + Microseconds(1)), now_ + Milliseconds(5));
  queue_.push({at, serial_++, [this, i] {
                 nodes_[i]->timer_set = false;
                 if (!Alive(i)) return;
                 if (nodes_[i]->peer->NextDeadline() <= now_)
                   Input(i, [&](Actions& out) { nodes_[i]->peer->OnTimer(now_, out); });
                 Schedule(i);
               }});
}

std::optional<size_t> PeerWorld::IndexOf(const PeerId& id) const {
  const auto at = index_.find(id);
  if (at == index_.end()) return std::nullopt;
  return at->second;
}

}  // namespace crowdsurf::worker
