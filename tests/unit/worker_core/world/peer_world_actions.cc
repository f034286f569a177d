// What the peers of this world ask of their hosts, and what their trainers do (peer_world.h).
#include <algorithm>
#include <utility>

#include "tests/unit/worker_core/world/peer_world.h"

namespace crowdsurf::worker {

void PeerWorld::ChunkTo(size_t from, const PeerId& to, ChunkArrived chunk, Bytes bytes) {
  const auto j = IndexOf(to);
  if (!j) return;
  At(Delay(), [this, from, j = *j, chunk, bytes = std::move(bytes)]() mutable {
    if (!Alive(j)) return;
    Node& n = *nodes_[j];
    chunk.from = nodes_[from]->config.id;
    const auto handle = n.reducer.Find(chunk.instance);
    const bool sound = handle && n.reducer.IsSound(*handle, chunk.kind, chunk.chunk, bytes);
    n.result = bytes;
    chunk.finite = sound;
    if (chunk.kind == ChunkArrived::Kind::kResult &&
        (!sound || ContentHash(bytes, ContentKey(chunk.instance)) != chunk.hash))
      return;
    // Keep before the actions run: a fold may follow at once.
    Actions out;
    const bool keep = n.peer->OnChunk(now_, chunk, out);
    if (keep) n.reducer.KeepInput(*handle, chunk.rank, chunk.chunk, chunk.assigned, bytes);
    for (Action& action : out) Execute(j, action);
    n.result = {};
    Schedule(j);
  });
}

void PeerWorld::Do(size_t i, const Send& a) {
  const auto j = IndexOf(a.to);
  if (!j || nodes_[i]->island != nodes_[*j]->island) return;
  if (lose && lose(i, *j, *DecodeMessage(a.body))) return;
  At(Delay(), [this, i, j = *j, body = a.body] {
    if (Alive(j))
      Input(j, [&](Actions& out) {
        nodes_[j]->peer->OnMessage(now_, nodes_[i]->config.id, body, out);
      });
  });
}

void PeerWorld::Do(size_t i, const PutRecord& a) {
  board_[a.key][nodes_[i]->config.id] = {a.value, now_ + a.ttl};
  const PeerRecord record{a.key, nodes_[i]->config.id, a.value, a.ttl};
  for (size_t j = 0; j < nodes_.size(); ++j) {
    if (j == i || !Alive(j) || nodes_[i]->island != nodes_[j]->island) continue;
    if (lose_news && lose_news(i, j)) continue;
    const auto& w = nodes_[j]->watches;
    if (std::find(w.begin(), w.end(), a.key) == w.end()) continue;
    At(delay_ * 2, [this, j, record] {
      if (Alive(j))
        Input(j, [&](Actions& out) { nodes_[j]->peer->OnRecords(now_, {record}, out); });
    });
  }
}

void PeerWorld::Do(size_t i, const WatchKey& a) {
  nodes_[i]->watches.push_back(a.key);
  At(lookup_, [this, i, key = a.key] {
    if (!Alive(i)) return;
    std::vector<PeerRecord> records;
    for (const auto& [owner, entry] : board_[key])
      if (entry.second > now_ && nodes_[index_.at(owner)]->island == nodes_[i]->island)
        records.push_back({key, owner, entry.first, entry.second - now_});
    Input(i, [&](Actions& out) { nodes_[i]->peer->OnRecords(now_, records, out); });
  });
}

void PeerWorld::Do(size_t i, const OpenBuffers& a) {
  Node& n = *nodes_[i];
  n.open[a.round] = a.instance;
  n.weights.push_back(a.weight);
  selfs_[{i, a.round}] = a.self;
  n.reducer.Open(
      a.round, {a.instance, a.self, a.chunks, a.wire, n.regions[a.from], n.regions[a.to], a.mask});
}

void PeerWorld::Do(size_t i, const CloseBuffers& a) {
  nodes_[i]->reducer.Close(a.round);
  nodes_[i]->open.erase(a.round);
}

void PeerWorld::Do(size_t i, Chunk& a) {
  Node& n = *nodes_[i];
  const InstanceId instance = n.open.at(a.round);
  const RoundHandle round = a.round;
  if (const auto* send = std::get_if<SendInput>(&a.action)) {
    ChunkTo(i, send->to,
            {.kind = ChunkArrived::Kind::kInput,
             .instance = instance,
             .from = {},
             .rank = selfs_.at({i, round}),
             .chunk = send->chunk,
             .assigned = send->assigned},
            n.reducer.OwnInput(round, send->chunk));
  } else if (const auto* result = std::get_if<SendResult>(&a.action)) {
    ChunkTo(i, result->to,
            {.kind = ChunkArrived::Kind::kResult,
             .instance = instance,
             .from = {},
             .rank = 0,
             .chunk = result->chunk,
             .assigned = result->assigned,
             .mask = result->mask,
             .hash = result->hash},
            *n.reducer.Result(round, result->chunk));
  } else if (const auto* fold = std::get_if<FoldChunk>(&a.action)) {
    const uint64_t hash = n.reducer.Fold(round, *fold);
    At(Microseconds(20), [this, i, round, f = *fold, hash] {
      Input(i, [&](Actions& out) {
        nodes_[i]->peer->OnFolded(now_, {round, f.chunk, f.assigned, hash}, out);
      });
    });
  } else if (const auto* store = std::get_if<StoreResult>(&a.action)) {
    n.reducer.StoreResult(round, store->chunk, n.result);
  } else if (const auto* drop = std::get_if<DropInputs>(&a.action)) {
    n.reducer.DropInputs(round, drop->chunk, drop->assigned);
  }
}

void PeerWorld::Do(size_t i, const SpeakChunk& a) {
  const Values& from = nodes_[i]->regions[a.region];
  Bytes bytes(a.span.count * WireWidth<double>(a.wire));
  EncodeWire(a.wire, std::span<const double>(from).subspan(a.span.begin, a.span.count), bytes);
  ChunkTo(i, a.to,
          {.kind = ChunkArrived::Kind::kInput,
           .instance = a.instance,
           .from = {},
           .rank = a.rank,
           .chunk = a.chunk,
           .assigned = a.assigned},
          std::move(bytes));
}

void PeerWorld::Do(size_t i, const RequestPublish& a) { nodes_[i]->publish = a.averaging; }

void PeerWorld::Do(size_t i, const WakeAt& a) { nodes_[i]->wake_steps = a.steps; }

void PeerWorld::Do(size_t i, const LetStart&) { StartTrainer(i); }

void PeerWorld::Do(size_t i, const Deliver& a) {
  Node& n = *nodes_[i];
  n.deliveries.push_back(a);
  n.delivered = a;
  const Values& values = n.regions[a.region];
  const Digest root = RootOf(values);
  n.serves[{a.averaging, root}] = values;
  At(Milliseconds(1), [this, i, k = a.averaging, root] { Local(i, StateHashed{k, root}); });
}

void PeerWorld::Do(size_t i, const FetchState& a) {
  Node& n = *nodes_[i];
  n.fetches.push_back(a);
  At(fetch_takes, [this, i, a] {
    if (!Alive(i)) return;
    bool ok = a.donors.empty();
    for (const PeerId& donor : a.donors) {
      const auto j = IndexOf(donor);
      if (fetch_fails || !j || !Alive(*j)) continue;
      const auto at = nodes_[*j]->serves.find({a.averaging, a.root});
      if (at == nodes_[*j]->serves.end()) continue;
      nodes_[i]->regions[a.region] = at->second;
      ok = true;
    }
    if (ok) {
      nodes_[i]->x = nodes_[i]->regions[a.region];
      StartTrainer(i);
    }
    Local(i, StateFetched{a.averaging, a.root, ok});
  });
}

void PeerWorld::Do(size_t i, const WriteCheckpoint& a) {
  nodes_[i]->checkpoints.push_back(a.final_model ? 1 : 0);
  nodes_[i]->checkpoint_after_stop |= nodes_[i]->stopped;
}

void PeerWorld::Do(size_t i, const RaiseStop&) { nodes_[i]->stopped = true; }

void PeerWorld::Do(size_t i, const Leave& a) {
  nodes_[i]->left.push_back(a.reason);
  nodes_[i]->exited = true;
}

void PeerWorld::StartTrainer(size_t i) {
  if (nodes_[i]->running) return;
  nodes_[i]->running = true;
  At(nodes_[i]->step_time, [this, i] { Step(i); });
}

void PeerWorld::Step(size_t i) {
  Node& n = *nodes_[i];
  if (!Alive(i) || n.stopped) return;
  if (n.delivered) {
    const Values& in = n.regions[n.delivered->region];
    for (size_t e = 0; e < elements_; ++e) n.x[e] += in[e] - n.regions[Region::kOutbox][e];
    n.delivered.reset();
  }
  ++n.steps;
  for (double& v : n.x) v += n.drift;
  const double samples = n.samples_per_step * static_cast<double>(n.steps);
  if (n.publish && n.gives_no_snapshot) {
    Local(i, PublishRefused{*std::exchange(n.publish, std::nullopt)});
    if (++n.refused == 3) Local(i, TrainerGone{});
  } else if (n.publish) {
    n.regions[Region::kOutbox] = n.x;
    const AveragingId k = *std::exchange(n.publish, std::nullopt);
    Local(i, Published{k, samples, n.steps});
  }
  if (n.wake_steps != 0 && n.steps >= n.wake_steps) {
    n.wake_steps = 0;
    Local(i, Progress{n.steps, samples, 1.0, {}});
  }
  At(n.step_time, [this, i] { Step(i); });
}

}  // namespace crowdsurf::worker
