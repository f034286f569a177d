#include "tests/contract/world/reduce_world.h"

#include "base/check.h"
#include "base/digest.h"
#include "base/metrics.h"
#include "worker/core/averaging/mixing.h"
#include "worker/core/port/config.h"
#include "worker/core/port/messages.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {

struct ReduceWorld::Node {
  Node(PeerConfig c, const MaskedAllReduce::MaskOf& mask)
      : config(std::move(c)), rounds(config, metrics, Logger()), strategy(std::move(mask)) {}

  std::vector<double>& At(Region region) { return boxes[static_cast<size_t>(region)]; }

  PeerConfig config;
  MetricRegistry registry;
  PeerMetrics metrics{registry};
  GroupRounds rounds;
  MaskedAllReduce strategy;
  Reducer<double> reducer{64 << 20};
  std::vector<double> parameters;
  std::vector<double> boxes[3];                              // outbox and inboxes
  std::map<RoundHandle, std::pair<InstanceId, int>> opened;  // own rank
  const Bytes* offered = nullptr;                            // the result in hand
  bool alive = true, over = true, applied = false;
  double weight = 0;
  Time armed = Time::Infinite();
};

ReduceWorld::ReduceWorld(ReduceWorldOptions options, const MaskedAllReduce::MaskOf& mask)
    : options_(std::move(options)), rng_(options_.seed) {
  std::vector<Member> members;
  for (int i = 0; i < options_.members; ++i) {
    PeerConfig config;
    config.job = "contract";
    config.id = *PeerId::From(Sha256(AsBytes("member" + std::to_string(i))).view());
    config.chunk_elements = options_.chunk_elements;
    nodes_.push_back(std::make_unique<Node>(config, mask));
    index_[config.id] = i;
    nodes_.back()->parameters.assign(options_.elements, 0);
    for (auto& box : nodes_.back()->boxes) box.assign(options_.elements, 0);
    members.push_back({.id = config.id, .joined_unix_ms = i});
  }
  AveragingConfig averaging;
  averaging.strategy = StrategyKind::kAllReduce;
  averaging.compression = options_.wire;
  const ViewFacts facts{.config = averaging, .seed = rng_.Next()};
  View view = FirstView(members.front(), facts);
  if (members.size() > 1)
    view = NextView(Seating(view, HashOf(view, "contract")), {},
                    {members.begin() + 1, members.end()}, facts);
  seating_ = Seating(view, HashOf(view, "contract"));
  for (int i = 0; i < options_.members; ++i) {
    Node& node = *nodes_[static_cast<size_t>(i)];
    CHECK(seating_.CellOf(node.config.id) == static_cast<CellIndex>(i));
    node.rounds.SetVector({.schema = Sha256(AsBytes("table")), .elements = options_.elements});
    Input(node, [&](Actions& out) {
      node.rounds.OnView(now(), view, seating_.hash(), ParentEnd::kOrderly, out);
      StrategyActions none;
      node.strategy.OnView(now(), view, node.config.id, none);
    });
  }
}
ReduceWorld::~ReduceWorld() = default;

void ReduceWorld::Note(ByteView bytes) {
  trace_ = (trace_ ^ ContentHash(bytes, trace_)) * 1099511628211ULL;
}

void ReduceWorld::Average() {
  ++averaging_;
  for (const auto& [member, after] : std::exchange(deaths_, {}))
    queue_.After(after, [this, member = member] {
      Node& dead = *nodes_[static_cast<size_t>(member)];
      dead.alive = false;
      for (auto& node : nodes_)
        queue_.After(Milliseconds(1), [this, &node, id = dead.config.id] {
          Input(*node, [&](Actions& out) {
            node->rounds.OnPeerDown(now(), id, SuspicionCause::kReset, out);
          });
        });
    });
  for (size_t i = 0; i < nodes_.size(); ++i)
    queue_.After(options_.delay * rng_.UniformDouble(), [this, i] {
      Node& node = *nodes_[i];
      if (!node.alive) return;
      node.over = node.applied = false;
      node.At(Region::kOutbox) = node.parameters;
      Input(node, [&](Actions& out) {
        StrategyActions actions;
        const double weight = options_.weights.empty() ? 1 : options_.weights[i];
        node.rounds.SetMin(averaging_);
        node.strategy.OnEvent(now(), PublishedEvent{averaging_, weight}, actions);
        Run(node, actions, out);
      });
    });
  const Time end = now() + Seconds(60);
  const Time opened = now() + options_.delay;
  while ((now() <= opened || !AllOver()) && queue_.RunOne(end)) {
  }
  CHECK(AllOver());
}

bool ReduceWorld::AllOver() const {
  for (const auto& node : nodes_)
    if (node->alive && !node->over) return false;
  return true;
}

// What Averaging does with them (averaging_rounds.cc).
void ReduceWorld::Run(Node& node, StrategyActions& actions, Actions& out) {
  for (const StrategyAction& action : actions) {
    if (const auto* open = std::get_if<OpenRound>(&action)) {
      GroupRounds::Opening opening;
      opening.averaging = open->averaging;
      opening.axis = open->axis;
      opening.from = open->from;
      opening.to = open->to;
      opening.stake = {.weight = open->weight, .samples = open->weight, .before = {}};
      opening.mask = open->mask;
      std::set<PeerId> down;
      for (const auto& other : nodes_)
        if (!other->alive) down.insert(other->config.id);
      node.rounds.OpenRound(now(), opening, seating_, down, out);
    } else if (const auto* result = std::get_if<DeliverResult>(&action)) {
      node.over = node.applied = true;
      node.weight = result->weight;
      node.parameters = node.At(result->region);
      Note({reinterpret_cast<const uint8_t*>(node.parameters.data()),
            node.parameters.size() * sizeof(double)});
    } else if (std::holds_alternative<AbandonAveraging>(action)) {
      node.over = true;
    }
  }
}

void ReduceWorld::Input(Node& node, const std::function<void(Actions&)>& input) {
  if (!node.alive) return;
  Actions actions;
  before_();
  input(actions);
  after_();
  for (Action& action : actions) Execute(node, action);
  for (const GroupRounds::Ended& ended : node.rounds.TakeEnded()) {
    Input(node, [&](Actions& out) {
      StrategyActions more;
      node.strategy.OnEvent(now(),
                            RoundDecided{ended.averaging, ended.axis, Applied(ended.over.outcome),
                                         ended.over.stake.weight},
                            more);
      Run(node, more, out);
    });
  }
  ArmTimer(node);
}

void ReduceWorld::ArmTimer(Node& node) {
  const Time deadline = node.rounds.NextDeadline();
  if (deadline.infinite() || deadline >= node.armed) return;
  node.armed = deadline;
  queue_.At(deadline, [this, &node] {
    if (node.armed > now()) return;
    node.armed = Time::Infinite();
    Input(node, [&](Actions& out) { node.rounds.OnTimer(now(), out); });
  });
}

void ReduceWorld::Carry(const std::function<void()>& run) {
  const int copies = rng_.Bernoulli(options_.loss) ? 0 : rng_.Bernoulli(options_.repeat) ? 2 : 1;
  for (int k = 0; k < copies; ++k) queue_.After(options_.delay * rng_.UniformDouble(), run);
}

void ReduceWorld::Execute(Node& node, Action& action) {
  if (const auto* send = std::get_if<Send>(&action)) {
    Note(send->body);
    Carry([this, from = node.config.id, to = send->to, body = send->body] {
      auto message = DecodeMessage(body);
      auto* frame = std::get_if<message::RoundFrame>(&*message);
      if (frame == nullptr) return;  // lists of seats: they do not differ here
      Node& target = *nodes_[static_cast<size_t>(index_.at(to))];
      Input(target, [&](Actions& out) { target.rounds.OnFrame(now(), from, *frame, out); });
      if (!foreign_ || frame->view != seating_.hash()) return;  // an answer to such a one
      frame->view = HashOf(seating_.view(), "another job");
      Bytes& bytes = frame->frame;
      bytes[0] ^= 1;  // and so its instance is another
      Input(target, [&](Actions& out) { target.rounds.OnFrame(now(), from, *frame, out); });
    });
  } else if (const auto* open = std::get_if<OpenBuffers>(&action)) {
    node.opened[open->round] = {open->instance, open->self};
    node.reducer.Open(open->round, {open->instance, open->self, open->chunks, open->wire,
                                    node.At(open->from), node.At(open->to), open->mask});
  } else if (const auto* close = std::get_if<CloseBuffers>(&action)) {
    node.reducer.Close(close->round);
    node.opened.erase(close->round);
  } else if (const auto* chunk = std::get_if<Chunk>(&action)) {
    ExecuteChunk(node, *chunk);
  }
}

void ReduceWorld::ExecuteChunk(Node& node, const Chunk& chunk) {
  const auto& [instance, self] = node.opened.at(chunk.round);
  if (const auto* input = std::get_if<SendInput>(&chunk.action)) {
    before_();
    Bytes bytes = node.reducer.OwnInput(chunk.round, input->chunk);
    after_();
    const auto spoiled = spoiled_.find(self);
    if (spoiled != spoiled_.end()) spoiled->second(bytes);
    input_bytes_ += bytes.size();
    SendChunk(input->to,
              {.kind = ChunkArrived::Kind::kInput,
               .instance = instance,
               .from = node.config.id,
               .rank = self,
               .chunk = input->chunk,
               .assigned = input->assigned},
              std::move(bytes));
  } else if (const auto* result = std::get_if<SendResult>(&chunk.action)) {
    SendChunk(result->to,
              {.kind = ChunkArrived::Kind::kResult,
               .instance = instance,
               .from = node.config.id,
               .chunk = result->chunk,
               .assigned = result->assigned,
               .mask = result->mask,
               .hash = result->hash},
              *node.reducer.Result(chunk.round, result->chunk));
  } else if (const auto* fold = std::get_if<FoldChunk>(&chunk.action)) {
    before_();
    const uint64_t hash = node.reducer.Fold(chunk.round, *fold);
    after_();
    queue_.After(Microseconds(20), [this, &node, round = chunk.round, c = fold->chunk,
                                    assigned = fold->assigned, hash] {
      Input(node, [&](Actions& out) {
        node.rounds.OnFolded(now(), {round, c, assigned, hash}, out);
      });
    });
  } else if (const auto* store = std::get_if<StoreResult>(&chunk.action)) {
    node.reducer.StoreResult(chunk.round, store->chunk, *node.offered);
  } else if (const auto* drop = std::get_if<DropInputs>(&chunk.action)) {
    node.reducer.DropInputs(chunk.round, drop->chunk, drop->assigned);
  }
}

void ReduceWorld::SendChunk(const PeerId& to, ChunkArrived chunk, Bytes bytes) {
  Note(bytes);
  Carry([this, to, chunk, bytes = std::move(bytes)] {
    Node& target = *nodes_[static_cast<size_t>(index_.at(to))];
    Arrive(target, chunk, bytes);
    if (!foreign_) return;
    ChunkArrived other = chunk;
    other.instance = MixInstanceOf(seating_.hash());
    Arrive(target, other, bytes);
  });
}

// As chunk_plane.cc does it.
void ReduceWorld::Arrive(Node& node, ChunkArrived chunk, const Bytes& bytes) {
  if (!node.alive) return;
  const auto round = node.reducer.Find(chunk.instance);
  chunk.finite = !round || node.reducer.IsSound(*round, chunk.kind, chunk.chunk, bytes);
  const bool result = chunk.kind == ChunkArrived::Kind::kResult;
  if (!chunk.finite) ++bad_inputs_;
  if (round && result &&
      (!chunk.finite || ContentHash(bytes, ContentKey(chunk.instance)) != chunk.hash))
    return;
  node.offered = &bytes;
  Input(node, [&](Actions& out) {
    // Kept before the actions run: a fold may be among them.
    if (node.rounds.OnChunk(now(), chunk, out))
      node.reducer.KeepInput(*round, chunk.rank, chunk.chunk, chunk.assigned, bytes);
    max_held_ = std::max(max_held_, node.reducer.held_bytes());
  });
  node.offered = nullptr;
}

std::vector<int> ReduceWorld::Living() const {
  std::vector<int> living;
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i]->alive) living.push_back(static_cast<int>(i));
  return living;
}
std::vector<double>& ReduceWorld::parameters(int member) {
  return nodes_[static_cast<size_t>(member)]->parameters;
}
bool ReduceWorld::applied(int member) const { return nodes_[static_cast<size_t>(member)]->applied; }
double ReduceWorld::weight(int member) const { return nodes_[static_cast<size_t>(member)]->weight; }
double ReduceWorld::Refused(const std::string& reason) const {
  double sum = 0;
  for (const auto& node : nodes_)
    sum += node->registry.Value("crowdsurf_round_frames_refused_total", {{"reason", reason}});
  return sum;
}
void ReduceWorld::Watch(std::function<void()> before, std::function<void()> after) {
  before_ = std::move(before);
  after_ = std::move(after);
}

}  // namespace crowdsurf::worker
