#include "simulator/round/round_world.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "worker/core/round/partition.h"
#include "worker/core/round/round_codec.h"
#include "worker/core/view/view.h"

namespace crowdsurf::simulator {

using worker::Frame;
using worker::RoundCell;
using worker::RoundOver;
using worker::SpeakerSpec;
using worker::SuspicionCause;

namespace {

// Events of one group at a time: far more than any sane run has.
constexpr size_t kMaxPendingOfGroup = 20'000;
// ... where it has few chunks. Behind a thin link the results of all chunks wait, for each member.
constexpr size_t kFewChunks = 24;
constexpr size_t kMaxPendingOfChunk = 40;  // and rank

PeerId IdOfNode(uint64_t seed, int node) {
  return PeerId(Sha256(AsBytes(absl::StrCat("node ", node, " of ", seed))).bytes());
}

}  // namespace

RoundWorld::RoundWorld(const RoundScenario& scenario)
    : scenario_(scenario),
      rng_(scenario.seed),
      network_(queue_, rng_.Fork("network"), scenario.links),
      checkers_(report_.violations) {
  const int nodes =
      scenario_.members + scenario_.holes * scenario_.speakers + scenario_.outside_witnesses;
  for (int node = 0; node < nodes; ++node) {
    const PeerId id = IdOfNode(scenario_.seed, node);
    index_[id] = node;
    nodes_.push_back(
        std::make_unique<RoundNode>(ProcessName{node, id}, scenario_, *this, origins_));
  }
  MakeGroup();
  MakeSpeakers();
  for (auto& node : nodes_) node->SetWitnesses(witnesses_);
  Schedule();
}

RegionBuffer RoundWorld::DrawValues(const std::string& label, SnapshotId snapshot) {
  Rng rng = rng_.Fork(label);
  RegionBuffer region;
  region.Resize(scenario_.elements);
  for (float& value : region.values) value = static_cast<float>(rng.Normal());
  for (OriginId& origin : region.origins) origin = origins_.Of(snapshot);
  return region;
}

// Some coordinates are its own, the others hold what everybody holds there; some are nobody's.
worker::CoordinateMask RoundWorld::DrawMask(int node, RegionBuffer& values) {
  const RegionBuffer old = DrawValues("old", 0);
  Rng rng = rng_.Fork(absl::StrCat("mask ", node));
  const double share = rng.UniformDouble();
  MaskedInput input{values.values, std::vector<bool>(values.values.size())};
  std::vector<worker::Extent> extents;
  for (uint64_t element = 0; element < values.values.size(); ++element) {
    if (rng.Bernoulli(share)) {
      input.covered[element] = true;
      extents.push_back({element, 1});
    } else {
      input.own[element] = values.values[element] = old.values[element];
      values.origins[element] = 0;
    }
  }
  checkers_.OnMask(spec_.instance, node, std::move(input));
  return *worker::CoordinateMask::Of(extents, values.values.size());
}

void RoundWorld::MakeGroup() {
  const int outsiders = scenario_.members + scenario_.holes * scenario_.speakers;
  for (int w = 0; w < scenario_.outside_witnesses; ++w)
    witnesses_.push_back(At(outsiders + w).id());
  // Without outsiders the members are the witnesses, as in a small view.
  if (witnesses_.empty())
    for (int node = 0; node < scenario_.members; ++node) witnesses_.push_back(At(node).id());
  const auto members = static_cast<uint64_t>(scenario_.members);
  std::vector<uint64_t> shares(static_cast<size_t>(scenario_.members + scenario_.holes));
  // Equal parts; a hole owns none.
  for (uint64_t rank = 0; rank < members; ++rank)
    shares[rank] = scenario_.elements / members + (rank < scenario_.elements % members ? 1 : 0);
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    RoundCell cell;
    if (rank < members)
      cell.member = At(static_cast<int>(rank)).id();
    else
      for (int s = 0; s < scenario_.speakers; ++s)
        cell.speakers.insert(Speaker(static_cast<int>(rank - members), s).id());
    spec_.cells.push_back(std::move(cell));
  }
  spec_.instance = worker::IdOf({.job = "simulated",
                                 .view = {},
                                 .averaging = worker::AveragingId(scenario_.seed),
                                 .member_list = worker::MemberListHash(spec_.cells)});
  spec_.age = {1, worker::AveragingId(scenario_.seed + 1), 0};
  spec_.witnesses = witnesses_;
  spec_.chunks =
      worker::MakeChunks(shares, worker::RankSet::FirstRanks(members), scenario_.chunk_elements);
  spec_.window_chunks = scenario_.window_chunks;
  spec_.max_window_chunks = scenario_.max_window_chunks;
  spec_.schema = Sha256(AsBytes("schema"));
  Rng weights = rng_.Fork("weights");
  for (int node = 0; node < scenario_.members; ++node) {
    worker::RoundSpec spec = spec_;
    spec.self = node;
    spec.stake.weight = scenario_.zero_weights ? 0 : static_cast<double>(1 + weights.Uniform(1000));
    RegionBuffer values = DrawValues(absl::StrCat("input ", node), static_cast<SnapshotId>(node));
    worker::CoordinateMask mask;
    if (scenario_.masked) mask = DrawMask(node, values);
    At(node).BeMember(spec, std::move(values), std::move(mask));
  }
  // The checkers believe nothing that a lying member says.
  if (scenario_.plant >= Plant::kLieNan) checkers_.SetHostile(scenario_.planted);
}

RoundNode& RoundWorld::Speaker(int hole, int number) {
  return At(scenario_.members + hole * scenario_.speakers + number);
}

// All speakers of a hole hold the same bits: what the hole would have said.
void RoundWorld::MakeSpeakers() {
  for (int hole = 0; hole < scenario_.holes; ++hole) {
    const int rank = scenario_.members + hole;
    const bool twice = scenario_.plant == Plant::kTwiceInside;
    const std::string label = absl::StrCat("hole ", hole);
    const RegionBuffer values = DrawValues(label, static_cast<SnapshotId>(twice ? 0 : rank));
    for (int s = 0; s < scenario_.speakers; ++s)
      Speaker(hole, s).BeSpeaker({{.instance = spec_.instance,
                                   .rank = rank,
                                   .cells = spec_.cells,
                                   .chunks = spec_.chunks,
                                   .stake = {.weight = 17.0 + hole, .samples = 0, .before = {}},
                                   .root = Sha256(AsBytes(label))}},
                                 values);
  }
}

void RoundWorld::Schedule() {
  Rng rng = rng_.Fork("start");
  for (const RoundScenario::LateSnapshot& late : scenario_.late_snapshots)
    At(late.node).DelaySnapshot(late.after);
  for (auto& node : nodes_) {
    const auto spread = static_cast<uint64_t>(scenario_.start_spread.nanoseconds());
    queue_.After(Nanoseconds(static_cast<int64_t>(rng.Uniform(spread + 1))),
                 [&node] { node->Start(); });
  }
  for (const RoundScenario::Death& death : scenario_.deaths)
    At(death.node).DieAfter(death.after_actions);
  for (const RoundScenario::Spell& spell : scenario_.freezes) {
    queue_.After(spell.at, [this, spell] {
      RoundNode& node = At(spell.node);
      node.Freeze();
      // Tests ask for freezes in a certain phase.
      if (node.round()) report_.frozen_in[spell.node] = node.round()->phase();
    });
    queue_.After(spell.at + spell.length, [this, spell] { At(spell.node).Thaw(); });
  }
  for (const RoundScenario::Spell& spell : scenario_.cuts) {
    queue_.After(spell.at, [this, spell] { network_.Cut(spell.node, spell.of); });
    queue_.After(spell.at + spell.length,
                 [this, spell] { network_.Restore(spell.node, spell.of); });
  }
  for (const RoundScenario::Spell& spell : scenario_.suspicions) {
    queue_.After(spell.at, [this, spell] {
      // Wrong, and of the hard kind; taken back after a while.
      At(spell.node).OnSuspicion(At(spell.of).id(), SuspicionCause::kReset);
    });
    queue_.After(spell.at + spell.length,
                 [this, spell] { At(spell.node).OnTrust(At(spell.of).id()); });
  }
  for (const RoundScenario::Window& window : scenario_.windows)
    queue_.After(window.at, [this, window] {
      At(window.node).OnWindow(At(window.owner).id(), window.chunks);
    });
  for (const RoundScenario::Rate& rate : scenario_.rates)
    queue_.After(rate.at, [this, rate] { network_.SetRate(rate.node, rate.bytes_per_second); });
  queue_.After(scenario_.heal, [this] { Heal(); });
}

void RoundWorld::SendFrame(int from, const PeerId& to, const Frame& frame) {
  const auto at = index_.find(to);
  if (at == index_.end()) return;
  // Through the codec, as in production.
  const Bytes wire = worker::EncodeFrame(frame);
  const FrameOnLink link{from, at->second, Plane::kControl, wire.size()};
  network_.Send(link, [this, from, to = at->second, wire] {
    trace_.Add(static_cast<uint64_t>(queue_.now().nanoseconds()));
    trace_.Add(wire);
    const auto decoded = worker::DecodeFrame(wire);
    if (!decoded) {
      report_.violations.Add("bounds", "a frame of our own does not decode");
      return;
    }
    At(to).OnFrame(At(from).id(), *decoded);
  });
}

void RoundWorld::SendChunk(int from, const PeerId& to, ChunkFrame frame) {
  ++(frame.result ? report_.result_sends : report_.input_sends);
  const auto at = index_.find(to);
  if (at == index_.end()) return;
  const size_t bytes = scenario_.chunk_bytes + frame.parcel.wire.size();
  network_.Send({from, at->second, Plane::kTensor, bytes},
                [this, from, to = at->second, frame = std::move(frame)] {
                  trace_.Add(static_cast<uint64_t>(queue_.now().nanoseconds()));
                  trace_.Add(frame.parcel.wire);
                  At(to).OnChunk(At(from).id(), frame);
                });
}

void RoundWorld::OnDeath(int node) {
  dead_.insert(node);
  trace_.Add(static_cast<uint64_t>(node) + 1'000);
  // Nobody is told, so silence alone tells of it.
  if (scenario_.detection.infinite()) return;
  for (auto& other : nodes_)
    queue_.After(scenario_.detection, [this, node, &other] {
      other->OnSuspicion(At(node).id(), SuspicionCause::kReset);
    });
}

void RoundWorld::OnOver(int node, const RoundOver& over, worker::Ballot branch) {
  over_.insert(node);
  if (!healed_) early_over_.insert(node);
  report_.over[node] = over;
  trace_.Add(over.root.view());
  if (!worker::Applied(over.outcome)) return;
  // S4: what live members of the decision hold at this moment.
  std::map<int, std::vector<Bytes>> held;
  for (auto& other : nodes_)
    if (other->Holding() && over.members.Contains(other->rank()) && other->index() != node)
      held[other->index()] = other->Slots();
  checkers_.OnApplied(node, spec_.instance,
                      {.over = over,
                       .branch = branch,
                       .slots = At(node).Slots(),
                       .held_by_members = std::move(held)});
}

void RoundWorld::Heal() {
  healed_ = true;
  network_.Heal();
  for (auto& node : nodes_) node->Thaw();
  for (auto& node : nodes_)
    for (auto& other : nodes_)
      if (dead_.contains(other->index()))
        node->OnSuspicion(other->id(), SuspicionCause::kReset);
      else
        node->OnTrust(other->id());
  if (!QuorumLives()) TellQuorumLost();
}

// The roster's word, a while after the quorum died.
void RoundWorld::TellQuorumLost() {
  for (auto& node : nodes_) node->OnQuorumLost();
  queue_.After(Milliseconds(200), [this] {
    if (!AllOver()) TellQuorumLost();
  });
}

bool RoundWorld::AllOver() const {
  for (const auto& node : nodes_)
    // Speakers and outside witnesses have no round to end.
    if (node->alive() && node->rank() >= 0 && !over_.contains(node->index())) return false;
  return true;
}

bool RoundWorld::QuorumLives() const {
  std::set<PeerId> living;
  for (const PeerId& witness : witnesses_)
    if (!dead_.contains(index_.at(witness))) living.insert(witness);
  return worker::IsQuorum(witnesses_, living);
}

// Everybody whom a decision names is dead: what had to be kept died with them (L1, "orphan").
bool RoundWorld::HoldersDied() const {
  for (const auto& [node, over] : report_.over) {
    if (!worker::Applied(over.outcome)) continue;
    bool held = false;
    for (const auto& other : nodes_)
      held =
          held || (other->Holding() && other->rank() >= 0 && over.members.Contains(other->rank()));
    if (!held) return true;
  }
  return false;
}

// Free plans of the last ballots propose ABORT, so that is where patience ends.
bool RoundWorld::OutOfBallots() const {
  const size_t most = spec_.cells.size() * (worker::kMaxBallots - worker::kAbortBallots);
  for (const auto& node : nodes_)
    if (node->round() && node->round()->ballot() > most) return true;
  return false;
}

void RoundWorld::CheckEnd() {
  const size_t ranks = spec_.cells.size();
  const bool quorum = QuorumLives();
  for (const auto& node : nodes_) {
    if (!node->alive() || node->rank() < 0) continue;
    const auto over = report_.over.find(node->index());
    if (over == report_.over.end()) {
      report_.violations.Add("L1", absl::StrCat("node ", node->index(), " never ended"));
      continue;
    }
    const worker::Outcome outcome = over->second.outcome;
    // Nothing is promised to a group with a liar in it.
    const bool lied = scenario_.plant >= Plant::kLieNan;
    // Given up while suspicion was still wrong, or out of ballots because of it: the counter says.
    const bool spent = early_over_.contains(node->index()) || OutOfBallots();
    const bool excused =
        outcome == worker::Outcome::kOrphaned || !quorum || lied || spent || HoldersDied();
    if (!worker::Applied(outcome) && !excused)
      report_.violations.Add("L1", absl::StrCat("node ", node->index(), " kept its own values"));
  }
  const size_t chunks = std::max(spec_.chunks.size(), kFewChunks) - kFewChunks;
  const size_t bound = kMaxPendingOfGroup + chunks * ranks * kMaxPendingOfChunk + BeatsOnTheirWay();
  if (queue_.max_pending() > bound)
    report_.violations.Add("bounds", absl::StrCat(queue_.max_pending(), " events pending"));
}

// Beats that wait behind chunks: a node's link carries one frame after the other, and windows let
// so many bytes wait there.
size_t RoundWorld::BeatsOnTheirWay() const {
  if (scenario_.rates.empty()) return 0;
  double slowest = scenario_.rates.front().bytes_per_second;
  for (const RoundScenario::Rate& rate : scenario_.rates)
    slowest = std::min(slowest, rate.bytes_per_second);
  const auto ranks = static_cast<double>(scenario_.members);
  const double bytes = ranks * static_cast<double>(scenario_.max_window_chunks) *
                       static_cast<double>(scenario_.chunk_bytes);
  const double beat = scenario_.pacing.min_silence.seconds() / 2;
  return static_cast<size_t>(ranks * ranks * bytes / slowest / beat);
}

RoundReport RoundWorld::Run() {
  const Time end = queue_.now() + scenario_.deadline;
  // Where nobody dies, a run may be over before it heals.
  while (!(AllOver() && (healed_ || scenario_.deaths.empty())) && queue_.RunOne(end))
    if (queue_.now() >= end) break;
  // What is still on its way must change nothing any more.
  const Time after = queue_.now() + Milliseconds(50);
  while (queue_.RunOne(after)) {
  }
  CheckEnd();
  for (const auto& node : nodes_) {
    report_.actions.push_back(node->actions());
    report_.alive.push_back(node->alive());
    if (node->branch() > 0) report_.branch[node->index()] = node->branch();
    const auto over = report_.over.find(node->index());
    if (over != report_.over.end() && worker::Applied(over->second.outcome))
      report_.bits[node->index()] = node->Slots();
    if (node->round())
      for (const auto& [reason, count] : node->round()->counts().refused)
        report_.refused[reason] += count;
  }
  report_.events = queue_.done();
  report_.trace = trace_.hash();
  report_.length = queue_.now() - kStartOfTime;
  return std::move(report_);
}

RoundReport RunRound(const RoundScenario& scenario) { return RoundWorld(scenario).Run(); }

}  // namespace crowdsurf::simulator
