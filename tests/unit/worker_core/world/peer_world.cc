#include "tests/unit/worker_core/world/peer_world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace crowdsurf::worker {
namespace {

// Longer than any test. A peer hears of its trainer's steps only when it asked to, so that one that
// asks too late is noticed.
constexpr Duration kNeverUnasked = Seconds(3600 * 24);

// Prints what the peers log when CROWDSURF_TEST_LOG is set: for a failing seed.
class PrintedLog : public LogSink {
 public:
  void Write(LogLevel, std::string_view module, std::string_view message,
             std::initializer_list<LogField> fields) override {
    std::string line = std::string(module) + ": " + std::string(message);
    for (const LogField& f : fields) line += " " + std::string(f.key) + "=" + f.value;
    std::fprintf(stderr, "%s\n", line.c_str());
  }
};

LogSink* LogOfTests() {
  static PrintedLog log;
  return std::getenv("CROWDSURF_TEST_LOG") == nullptr ? nullptr : &log;
}

}  // namespace

// ---- a node ------------------------------------------------------------------------------------

PeerWorld::Node::Node(int number, Setup setup, PeerWorld& world)
    : Host(number, std::move(setup), world), x(At(Region::kOutbox).values), world_(world) {
  for (size_t e = 0; e < x.size(); ++e) x[e] = static_cast<double>(e % 7);
}

Progress PeerWorld::Node::Totals() const {
  return {steps, samples_per_step * static_cast<double>(steps), 1.0, {}};
}

void PeerWorld::Node::Execute(const Action& action) {
  if (const auto* open = std::get_if<OpenBuffers>(&action)) {
    weights.push_back(open->weight);
    opened.push_back(*open);
  }
  if (const auto* deliver = std::get_if<Deliver>(&action)) deliveries.push_back(*deliver);
  if (const auto* fetch = std::get_if<FetchState>(&action)) {
    fetches.push_back(*fetch);
    if (world_.by_chunks_ && !fetch->donors.empty()) return world_.by_chunks_->Fetch(id(), *fetch);
    world_.BeginTransfer(index(), *fetch);
  }
  if (const auto* kernel = std::get_if<RunKernel>(&action)) kernels.push_back(*kernel);
  if (const auto* move = std::get_if<MoveTrainer>(&action)) moves.push_back(*move);
  if (const auto* leave = std::get_if<Leave>(&action)) return leaves.push_back(*leave);
  Host::Execute(action);
  const auto* deliver = std::get_if<Deliver>(&action);
  if (deliver != nullptr && world_.by_chunks_) world_.by_chunks_->Offer(id(), *deliver);
}

// An agent does what it was asked together with Leave: it puts the record that says so.
void PeerWorld::Node::OnActed(const Actions&) {
  if (!leaves.empty()) Host::Execute(leaves.back());
}

simulator::HeldValues<double> PeerWorld::Node::Holds(AveragingId averaging, const Digest& root) {
  if (const auto served = Serves(averaging, root); served.average != nullptr) return served;
  if (!alive() || restored != std::pair(averaging, root)) return {};
  return {.average = &At(Region::kInboxA)};
}

void PeerWorld::Node::OnOverwritten(Region region) {
  if (region == Region::kInboxA) restored.reset();
  const bool inbox = region == Region::kInboxA || region == Region::kInboxB;
  if (world_.by_chunks_ && inbox) world_.by_chunks_->Retire(id(), region);
}

void PeerWorld::Node::WriteCheckpoint(const worker::WriteCheckpoint& action) {
  checkpoints.push_back(action.final_model ? 1 : 0);
  checkpoint_after_stop |= stopped;
}

// One that is held takes as long as for a step.
void PeerWorld::Node::RequestSnapshot(AveragingId averaging) {
  publish = averaging;
  if (!running && gives_first && !silent)
    queue().After(step_time, [this] {
      if (alive() && !running && publish) Publish();
    });
}

void PeerWorld::Node::Publish() {
  if (gives_no_snapshot) {
    Local(PublishRefused{*std::exchange(publish, std::nullopt)});
    if (++refused == 3) Local(TrainerGone{});
    return;
  }
  At(Region::kOutbox).values = x;
  Local(Published{*std::exchange(publish, std::nullopt), Totals().samples, steps,
                  misses_units ? AveragingId() : units.by});
}

void PeerWorld::Node::StartTrainer() {
  if (std::exchange(running, true)) return;
  began = x;
  queue().After(step_time, [this] { Step(); });
}

void PeerWorld::Node::Step() {
  if (!alive() || stopped) return;
  if (delivered) {
    const Values& in = At(*std::exchange(delivered, std::nullopt)).values;
    const Values& out = At(Region::kOutbox).values;
    for (size_t e = 0; e < x.size(); ++e) x[e] += in[e] - out[e];
  }
  ++steps;
  for (double& v : x) v += drift;
  if (publish) Publish();
  if (wake_steps != 0 && steps >= wake_steps) {
    wake_steps = 0;
    Local(Totals());
  }
  queue().After(step_time, [this] { Step(); });
}

// ---- the world ---------------------------------------------------------------------------------

size_t PeerWorld::Add(Duration trainer_delay, int island,
                      std::optional<RestoredCheckpoint> restored) {
  const size_t i = nodes_.size();
  std::array<uint8_t, 32> id{};
  Rng ids = rng_.Fork("id" + std::to_string(i));
  for (uint8_t& b : id) b = static_cast<uint8_t>(ids.Next());
  PeerConfig config;
  config.job = "job";
  config.worker = "w" + std::to_string(i);
  config.id = PeerId(id);
  config.peer_endpoint = "h" + std::to_string(i) + ":1";
  config.tensor_endpoint = "h" + std::to_string(i) + ":2";
  config.started_unix_ms = 1'000 + (now() - simulator::kStartOfTime).nanoseconds() / 1'000'000;
  config.averaging = averaging_;
  config.chunk_elements = 8;
  index_[config.id] = i;
  Host::Setup setup{.config = config,
                    .rng = rng_.Fork("peer" + std::to_string(i)),
                    .elements = elements_,
                    .units = units,
                    .gives_first = gives_first,
                    .times = {.registers = trainer_delay,
                              .progress = kNeverUnasked,
                              .fold = Microseconds(20),
                              .fetch = fetch_takes,
                              .fetch_tries = 1},
                    .log = LogOfTests()};
  nodes_.push_back(std::make_unique<Node>(static_cast<int>(i), std::move(setup), *this));
  nodes_[i]->island = island;
  nodes_[i]->gives_first = gives_first;
  if (restored) {
    nodes_[i]->restored = {restored->averaging, restored->root};
    At(trainer_delay, [this, i, restored] { Local(i, *restored); });
  }
  nodes_[i]->Start();
  return i;
}

void PeerWorld::OnDeath(int node) {
  const Node& dead = *nodes_[static_cast<size_t>(node)];
  if (dead.left()) return;
  for (const auto& other : nodes_)
    if (other.get() != &dead)
      At(kDelay, [&other = *other, id = dead.id()] { other.OnDown(id, DownEvidence::kRefused); });
}

void PeerWorld::RunFor(Duration d) {
  const Time end = now() + d;
  while (queue_.RunOne(end)) CHECK_LT(queue_.done(), 20'000'000U);
}

void PeerWorld::Slander(size_t at, size_t whom) {
  nodes_[at]->OnDown(nodes_[whom]->id(), DownEvidence::kRefused);
}

void PeerWorld::Tell(size_t at, size_t from, const Message& message) {
  TellBytes(at, from, EncodeMessage(message));
}

void PeerWorld::TellBytes(size_t at, size_t from, Bytes body) {
  nodes_[at]->OnBody(nodes_[from]->id(), std::make_shared<const Bytes>(std::move(body)));
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
  const Time start = now();
  while (now() - start < most) {
    RunFor(Milliseconds(5));
    if (Together()) return now() - start;
  }
  return std::nullopt;
}

std::optional<size_t> PeerWorld::IndexOf(const PeerId& id) const {
  const auto at = index_.find(id);
  if (at == index_.end()) return std::nullopt;
  return at->second;
}

// ---- what the nodes ask of it ------------------------------------------------------------------

void PeerWorld::SendBody(int node, const PeerId& to, const Bytes& body) {
  const auto from = static_cast<size_t>(node);
  const auto j = IndexOf(to);
  if (!j || !OneIsland(from, *j)) return;
  if (lose && lose(from, *j, *DecodeMessage(body))) return;
  At(Delay(), [this, from, j = *j, body] { TellBytes(j, from, body); });
}

void PeerWorld::SendTensor(int, const PeerId& to, const simulator::TensorFrame& frame) {
  if (const auto j = IndexOf(to))
    At(Delay(), [this, j = *j, frame] { nodes_[j]->OnTensor(frame); });
}

void PeerWorld::Put(int node, const PutRecord& put) {
  const auto from = static_cast<size_t>(node);
  const PeerId& owner = nodes_[from]->id();
  board_[put.key][owner] = {put.value, now() + put.ttl};
  const PeerRecord record{put.key, owner, put.value, put.ttl};
  for (size_t j = 0; j < nodes_.size(); ++j) {
    if (j == from || !OneIsland(from, j) || (lose_news && lose_news(from, j))) continue;
    const auto& keys = nodes_[j]->watches;
    if (std::find(keys.begin(), keys.end(), put.key) != keys.end())
      At(kDelay * 2, [this, j, record] { nodes_[j]->OnRecords({record}); });
  }
}

void PeerWorld::Watch(int node, const std::string& key) {
  const auto i = static_cast<size_t>(node);
  nodes_[i]->watches.push_back(key);
  At(kLookup, [this, i, key] {
    std::vector<PeerRecord> records;
    for (const auto& [owner, entry] : board_[key])
      if (entry.second > now() && OneIsland(index_.at(owner), i))
        records.push_back({key, owner, entry.first, entry.second - now()});
    nodes_[i]->OnRecords(records);
  });
}

// Averagings that are made during a transfer change nothing of what it brings.
void PeerWorld::BeginTransfer(int node, const FetchState& fetch) {
  Transfer& transfer = transfers_[node];
  transfer.donors.clear();
  for (const PeerId& donor : fetch.donors) {
    const auto j = IndexOf(donor);
    if (!j) continue;
    const auto held = nodes_[*j]->Holds(fetch.averaging, fetch.root);
    if (held.average == nullptr) continue;
    transfer.donors.push_back(*j);
    transfer.values = *held.average;
    transfer.velocity.reset();
    if (held.velocity != nullptr) transfer.velocity = *held.velocity;
  }
}

void PeerWorld::FetchByChunks(size_t values, Duration takes) {
  by_chunks_ = std::make_unique<StateTransfers>(
      StateTransfers::World{queue_, [this](const PeerId& peer) { return Alive(index_.at(peer)); },
                            [this](const PeerId& peer, Region region) -> const Values& {
                              return nodes_[index_.at(peer)]->At(region).values;
                            },
                            [this](const PeerId& peer, const FetchState& asked) {
                              EndTransfer(static_cast<int>(index_.at(peer)), asked);
                            }},
      values, takes);
}

// What has come by chunks takes the place of a transfer that is over at once.
void PeerWorld::EndTransfer(int node, const FetchState& asked) {
  Node& at = *nodes_[static_cast<size_t>(node)];
  const StateTransfers::Result& result = by_chunks_->result(at.id());
  if (!result.ok) return at.Local(StateFetched{asked.averaging, asked.root, false});
  const auto half = result.values.begin() + static_cast<std::ptrdiff_t>(elements_);
  const std::vector<simulator::OriginId> none(elements_);
  transfers_[node] = {.donors = {static_cast<size_t>(node)},
                      .values = {{result.values.begin(), half}, none},
                      .velocity = {{{half, result.values.end()}, none}},
                      .mixed = result.mixed,
                      .job_samples = result.job_samples};
  FetchState came = asked;
  came.averaging = result.averaging;
  at.FinishFetch(came);
}

simulator::HeldValues<double> PeerWorld::FindState(int node, const FetchState&) {
  const Transfer& transfer = transfers_.at(node);
  const bool brought = std::any_of(transfer.donors.begin(), transfer.donors.end(),
                                   [this](size_t donor) { return Alive(donor); });
  if (!brought || fetch_fails) return {};
  return {&transfer.values, transfer.velocity ? &*transfer.velocity : nullptr, transfer.mixed,
          transfer.job_samples};
}

}  // namespace crowdsurf::worker
