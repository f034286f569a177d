#include "simulator/chaos/chaos_world.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "simulator/engine/node_config.h"
#include "worker/core/round/round_codec.h"

namespace crowdsurf::simulator {

namespace {

constexpr const char* kJob = "simulated";
constexpr size_t kMaxPendingOfJob = 50'000;           // events of one job at a time
constexpr int kMaxSendsOfOne = 3;                     // of one chunk to one peer, a ballot
constexpr Duration kUnreachable = Milliseconds(400);  // until a transport gives up on a peer
constexpr Duration kLook = Milliseconds(50);          // how often convergence is looked for

// From such a message its receiver learns of seats in its view.
bool TellsSeats(const worker::Message& message) {
  if (const auto* news = std::get_if<worker::message::ViewNews>(&message))
    return !news->seats.empty();
  return std::holds_alternative<worker::message::SeatingNews>(message) ||
         std::holds_alternative<worker::message::ListInUse>(message);
}

PeerCheckers::Counts CountsOf(const ChaosScenario& scenario) {
  if (scenario.one_round) return PeerCheckers::Counts::kApart;
  if (scenario.graph) return PeerCheckers::Counts::kTotals;
  return scenario.data.none() ? PeerCheckers::Counts::kSnapshots : PeerCheckers::Counts::kLeases;
}

}  // namespace

ChaosWorld::ChaosWorld(const ChaosScenario& scenario)
    : scenario_(scenario),
      rng_(scenario.seed),
      network_(queue_, rng_.Fork("network"), scenario.links),
      round_checkers_(report_.violations),
      peer_checkers_(report_.violations, origins_, scenario.wire, CountsOf(scenario)),
      turn_checkers_(report_.violations, origins_),
      outer_checkers_(report_.violations, scenario.outer),
      subnet_checkers_(report_.violations),
      lease_checkers_(report_.violations, scenario.data),
      mixing_checkers_(report_.violations,
                       scenario.graph ? scenario.graph->config : worker::AveragingConfig()),
      board_(queue_, network_, rng_.Fork("board"), scenario.record_loss,
             [this](int node, const std::vector<worker::PeerRecord>& records) {
               At(node).OnRecords(records);
             }) {
  Rng start = rng_.Fork("start");
  const auto spread = static_cast<uint64_t>(scenario_.start_spread.nanoseconds());
  for (int node = 0; node < scenario_.members; ++node)
    AddNode(Nanoseconds(static_cast<int64_t>(start.Uniform(spread + 1))));
  for (const Duration join : scenario_.joins) AddNode(join);
  Schedule();
}

void ChaosWorld::AddNode(Duration start) {
  const int node = static_cast<int>(nodes_.size());
  worker::PeerConfig config = NodeConfig(kJob, node, scenario_.seed, start);
  config.averaging.group_size = scenario_.group_size;
  config.averaging.interval = scenario_.interval_steps;
  config.averaging.compression = scenario_.wire;
  config.averaging.outer = scenario_.outer;
  config.averaging.weighting = scenario_.weighting;
  if (scenario_.one_round) config.averaging.rounds = worker::RoundsMode::kOne;
  if (scenario_.ist) config.averaging.strategy = worker::StrategyKind::kIst;
  if (scenario_.graph) SetStrategy(start, config.averaging);
  config.heartbeat = scenario_.heartbeat;
  config.form_delay = Milliseconds(100);
  config.view_debounce = Milliseconds(50);
  config.min_silence = Milliseconds(20);
  config.max_silence = Milliseconds(400);
  config.chunk_elements = scenario_.chunk_elements;
  config.window_chunks = 1;  // owners have few chunks here
  index_[config.id] = node;
  nodes_.push_back(
      std::make_unique<PeerNode>(node, config, scenario_, *this, rng_.Fork(config.worker)));
  queue_.After(start, [this, node] { At(node).Start(); });
}

void ChaosWorld::Schedule() {
  for (const ChaosScenario::Death& death : scenario_.deaths) {
    if (death.silent) silent_.insert(death.node);
    if (death.after_actions != UINT64_MAX) At(death.node).DieAfter(death.after_actions);
    if (!death.at.infinite()) queue_.After(death.at, [this, death] { At(death.node).Kill(); });
  }
  for (const ChaosScenario::Spell& leave : scenario_.leaves)
    queue_.After(leave.at, [this, leave] { At(leave.node).Leave(); });
  if (scenario_.plant == ChaosPlant::kNewTrainer)
    for (Duration at = Seconds(1); at < scenario_.heal; at = at + Seconds(0.7))
      queue_.After(at, [this] { At(scenario_.planted).ReplaceTrainer(); });
  for (const ChaosScenario::Skew& skew : scenario_.skews)
    board_.clocks().Set(skew.node, skew.ahead);
  if (scenario_.plant == ChaosPlant::kOwnClock) board_.clocks().KeepOwn();
  ScheduleSpells();
  ScheduleSwitches();
  queue_.After(scenario_.heal, [this] { Heal(); });
}

void ChaosWorld::ScheduleSpells() {
  for (const ChaosScenario::Spell& spell : scenario_.freezes) {
    queue_.After(spell.at, [this, spell] { At(spell.node).Freeze(); });
    queue_.After(spell.at + spell.length, [this, spell] { At(spell.node).Thaw(); });
  }
  for (const ChaosScenario::Spell& spell : scenario_.cuts) {
    queue_.After(spell.at, [this, spell] { network_.Cut(spell.node, spell.of); });
    queue_.After(spell.at + spell.length,
                 [this, spell] { network_.Restore(spell.node, spell.of); });
  }
  for (const ChaosScenario::Partition& partition : scenario_.partitions) {
    queue_.After(partition.at, [this, partition] { network_.Partition(partition.side); });
    queue_.After(partition.at + partition.length, [this] { network_.EndPartition(); });
  }
  for (const ChaosScenario::Spell& spell : scenario_.suspicions)
    queue_.After(spell.at, [this, spell] {
      At(spell.node)
          .OnDown(At(spell.of).id(),
                  spell.length > Duration() ? DownEvidence::kRefused : DownEvidence::kUnreachable);
    });
  for (const ChaosScenario::Spell& spell : scenario_.hidden) {
    queue_.After(spell.at, [this, spell] { board_.Hide(spell.node, spell.of); });
    queue_.After(spell.at + spell.length, [this, spell] { board_.Show(spell.node, spell.of); });
  }
}

// False: the frame cannot leave. What a transport would notice by sending is told later.
bool ChaosWorld::CanSend(int from, const PeerId& to) {
  const auto at = index_.find(to);
  if (at == index_.end() || !At(from).Knows(to)) {
    ++report_.unknown_sends;
    return false;
  }
  if (scenario_.plant == ChaosPlant::kNeverTogether &&
      (from == scenario_.planted || at->second == scenario_.planted))
    return false;
  if (!At(at->second).alive() && !silent_.contains(at->second))
    TellDown(from, at->second, DownEvidence::kRefused, scenario_.detection);
  else if (!network_.Reaches(from, at->second) || !At(at->second).alive())
    TellDown(from, at->second, DownEvidence::kUnreachable, kUnreachable);
  return true;
}

// A transport reports a dead or unreachable peer once in a while, not for every frame.
void ChaosWorld::TellDown(int to, int of, DownEvidence evidence, Duration delay) {
  Time& last = told_down_[{to, of}];
  if (!last.unset() && queue_.now() < last + kUnreachable) return;
  last = queue_.now();
  queue_.After(delay, [this, to, of, evidence] {
    const bool certain = evidence == DownEvidence::kRefused;
    if (certain || !network_.Reaches(to, of) || !At(of).alive())
      At(to).OnDown(At(of).id(), evidence);
  });
}

// Time and target as one number.
uint64_t ChaosWorld::Arrival(int target) const {
  constexpr uint64_t kMostNodes = 128;
  return static_cast<uint64_t>(queue_.now().nanoseconds()) * kMostNodes +
         static_cast<uint64_t>(target);
}

void ChaosWorld::SendBody(int from, const PeerId& to, const Bytes& body) {
  // A body that goes to many is decoded once.
  if (last_body_ == nullptr || *last_body_ != body) {
    last_body_ = std::make_shared<const Bytes>(body);
    last_message_ = worker::DecodeMessage(body);
  }
  Look(from);
  if (!CanSend(from, to)) return;
  const int target = index_.at(to);
  if (scenario_.plant == ChaosPlant::kSeatsNotUnited && target == scenario_.planted &&
      last_message_ && TellsSeats(*last_message_))
    return;
  network_.Send(from, target, Plane::kControl, [this, from, target, wire = last_body_] {
    trace_.Add(Arrival(target));
    trace_.Add(*wire);
    At(target).OnBody(At(from).id(), wire);
  });
}

// What the checkers learn from a message on its way.
void ChaosWorld::Look(int from) {
  if (!last_message_) {
    report_.violations.Add("bounds", "a message of our own does not decode");
    return;
  }
  peer_checkers_.OnMessage(from, *last_message_, kJob);
  if (const auto* news = std::get_if<worker::message::ViewNews>(&*last_message_)) {
    if (const auto view = worker::DecodeView(news->view)) {
      const worker::ViewHash hash = HashOf(*view, kJob);
      witnesses_of_[hash] = view->witnesses;
      report_.epochs = std::max(report_.epochs, view->epoch);
      if (scenario_.plant == ChaosPlant::kSecondView && view->epoch > 1) {
        worker::View other = *view;
        other.seed ^= 1;
        peer_checkers_.OnView(other, HashOf(other, kJob));
      }
    }
  }
  if (const auto* round = std::get_if<worker::message::RoundFrame>(&*last_message_))
    LookAtRound(from, *round);
}

void ChaosWorld::LookAtRound(int from, const worker::message::RoundFrame& round) {
  const auto frame = worker::DecodeFrame(round.frame);
  if (!frame) {
    report_.violations.Add("bounds", "a frame of our own does not decode");
    return;
  }
  if (std::holds_alternative<worker::BallotOpen>(frame->body)) ++opens_[frame->instance];
  const auto witnesses = witnesses_of_.find(round.view);
  static const std::vector<PeerId> kNobody;
  round_checkers_.OnWitnessFrame(from, At(from).id(), *frame,
                                 witnesses == witnesses_of_.end() ? kNobody : witnesses->second);
}

void ChaosWorld::SendTensor(int from, const PeerId& to, const TensorFrame& frame) {
  if (!CanSend(from, to)) return;
  const int target = index_.at(to);
  if (const auto* chunk = std::get_if<worker::ChunkArrived>(&frame.header))
    CountSend(from, target, *chunk);
  network_.Send(from, target, Plane::kTensor, [this, target, frame] {
    trace_.Add(Arrival(target));
    trace_.Add(frame.parcel.wire);
    At(target).OnTensor(frame);
  });
}

void ChaosWorld::CountSend(int from, int to, const worker::ChunkArrived& chunk) {
  // Each ballot may ask for a chunk once more, so the bound grows with the ballots opened.
  const int sends =
      ++sends_[{chunk.instance, from, to, chunk.chunk, chunk.assigned, chunk.kind, chunk.rank}];
  const int opens = opens_.contains(chunk.instance) ? opens_.at(chunk.instance) : 0;
  if (sends > kMaxSendsOfOne * (1 + opens))
    report_.violations.Add("resent",
                           absl::StrCat("node ", from, " sent chunk ", chunk.chunk.value(), " of ",
                                        chunk.instance.brief(), " ", sends, " times"));
}

void ChaosWorld::Put(int from, const worker::PutRecord& record) {
  board_.Put(from, At(from).id(), record);
}

void ChaosWorld::OnDeath(int node) {
  trace_.Add(static_cast<uint64_t>(node) + 1'000);
  board_.Gone(node);
  if (scenario_.one_round) made_at_death_[node] = At(node).Made();
  // A silent death resets no connection.
  if (silent_.contains(node)) return;
  for (auto& other : nodes_)
    if (other->alive() && other->Knows(At(node).id()))
      TellDown(other->index(), node, DownEvidence::kRefused, scenario_.detection);
}

void ChaosWorld::OnDeliver(int node, const worker::Deliver& deliver, const RegionBuffer& mean) {
  ++report_.delivered;
  peer_checkers_.OnDeliver(node, deliver, mean);
  if (!scenario_.data.none()) SeeLeases(node, deliver, mean);
  trace_.Add(deliver.root.view());
  // Only averages after the heal show that the survivors have come together.
  if (!healed_) return;
  if (const auto summary = At(node).Summarize(); summary.view)
    after_heal_[{summary.view->hash, deliver.averaging}][node] = At(node).Result(deliver.region);
}

// L1 has a condition: a quorum of the view's witnesses lives. It is asked when the round fails; who
// is dead stays dead. In mild runs only: elsewhere anything may be cut off.
void ChaosWorld::OnRoundsMoved(int node) {
  if (!scenario_.mild) return;
  const worker::PeerSummary summary = At(node).Summarize();
  Rounds& rounds = rounds_[node];
  if (summary.rounds.failed() > rounds.seen.failed() && QuorumLives(rounds))
    rounds.broken += summary.rounds.failed() - rounds.seen.failed();
  rounds.seen = summary.rounds;
  if (!summary.view) return;
  rounds.view = summary.view->hash;
  rounds.lineage = summary.view->lineage;
}

// A witness that has gone into another lineage, its own branch above all, votes here no more.
bool ChaosWorld::QuorumLives(const Rounds& rounds) {
  const auto witnesses = witnesses_of_.find(rounds.view);
  if (witnesses == witnesses_of_.end()) return true;
  std::set<PeerId> living;
  for (const PeerNode* node : Living()) {
    const auto view = node->started() ? node->Summarize().view : std::nullopt;
    if (!view || view->lineage == rounds.lineage) living.insert(node->id());
  }
  return worker::IsQuorum(witnesses->second, living);
}

// Of the first donor that both ends reach and that has it still.
HeldValues<float> ChaosWorld::FindAt(
    int node, const worker::FetchState& fetch,
    const std::function<HeldValues<float>(const PeerNode& donor)>& held) {
  for (const PeerId& donor : fetch.donors) {
    const auto at = index_.find(donor);
    if (at == index_.end() || !At(node).Knows(donor)) continue;
    if (!network_.Reaches(at->second, node) || !network_.Reaches(node, at->second)) continue;
    const HeldValues<float> found = held(At(at->second));
    if (found.average != nullptr) return found;
  }
  return {};
}

HeldValues<float> ChaosWorld::FindState(int node, const worker::FetchState& fetch) {
  return FindAt(node, fetch,
                [&](const PeerNode& donor) { return donor.Serves(fetch.averaging, fetch.root); });
}

HeldValues<float> ChaosWorld::FindNewest(int node, const worker::FetchState& fetch) {
  return FindAt(node, fetch, [](const PeerNode& donor) { return donor.Newest(); });
}

void ChaosWorld::Heal() {
  healed_ = true;
  network_.Heal();
  board_.Heal();
  for (const ChaosScenario::Spell& spell : scenario_.hidden) board_.Show(spell.node, spell.of);
  for (auto& node : nodes_) {
    node->Thaw();
    node->HealTrainer();
  }
  // From here on suspicion is accurate: every death is told.
  for (auto& node : nodes_)
    for (auto& other : nodes_)
      if (node->alive() && !other->alive() && node->Knows(other->id()))
        node->OnDown(other->id(), DownEvidence::kRefused);
}

std::vector<PeerNode*> ChaosWorld::Living() {
  std::vector<PeerNode*> living;
  for (auto& node : nodes_)
    if (node->alive()) living.push_back(node.get());
  return living;
}

void ChaosWorld::CheckEnd() {
  if (queue_.max_pending() > kMaxPendingOfJob)
    report_.violations.Add("bounds", absl::StrCat(queue_.max_pending(), " events pending"));
  for (PeerNode* node : Living()) {
    ++report_.survivors;
    report_.in_parts += node->in_parts();
    if (!node->started()) continue;
    const worker::PeerSummary summary = node->Summarize();
    report_.kept += summary.rounds.failed();
    report_.repaired += summary.rounds.repaired + summary.rounds.adopted;
    if (summary.divergence > 0) report_.violations.Add("S1", "a survivor counted a divergence");
    if (rounds_[node->index()].broken > 0)
      report_.violations.Add(
          "L1", absl::StrCat("node ", node->index(), " kept ", summary.rounds.kept, ", aborted ",
                             summary.rounds.aborted, ", orphaned ", summary.rounds.orphaned, "; ",
                             rounds_[node->index()].broken,
                             " of them though a quorum lived and suspicion was accurate"));
  }
  report_.branches = peer_checkers_.branches();
}

ChaosReport ChaosWorld::Run() {
  // First with faults; then healed, and looked at until all are together.
  const Time heal = queue_.now() + scenario_.heal;
  while (queue_.RunOne(heal)) {
  }
  const Time end = queue_.now() + scenario_.deadline;
  bool together = false;
  while (!together && queue_.now() < end) {
    const Time until = queue_.now() + kLook;
    while (queue_.RunOne(until)) {
    }
    together = Together();
  }
  report_.healed_after = queue_.now() - heal;
  if (!together) report_.violations.Add("healed", WhyApart());
  CheckEnd();
  if (!scenario_.data.none()) CheckLeases();
  if (scenario_.graph) CheckMixing();
  report_.events = queue_.done();
  report_.exact = peer_checkers_.exact();
  report_.counts_checked = peer_checkers_.counts_checked();
  report_.described = peer_checkers_.described();
  report_.outer_steps = outer_checkers_.steps();
  report_.outer_begins = outer_checkers_.begins();
  report_.outer_fetched = outer_checkers_.fetched();
  report_.changes = outer_checkers_.changes();
  report_.group_means = turn_checkers_.means();
  report_.counts = turn_checkers_.counts();
  report_.subnet_rounds = subnet_checkers_.rounds();
  report_.subnet_kept = subnet_checkers_.kept();
  report_.trace = trace_.hash();
  return std::move(report_);
}

ChaosReport RunChaos(const ChaosScenario& scenario) { return ChaosWorld(scenario).Run(); }

}  // namespace crowdsurf::simulator
