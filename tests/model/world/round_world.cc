#include "tests/model/world/round_world.h"

#include <cmath>

namespace crowdsurf::worker::testing {
namespace {

constexpr int kSpeakerBase = 100;
constexpr int kWitnessBase = 200;
constexpr uint32_t kChunkElements = 3;
constexpr uint64_t kChaos = 400;      // faults happen before this time
constexpr uint64_t kHealed = 50'000;  // and everybody must be done by this one

std::string NameOf(const Payload& payload) {
  if (const auto* input = std::get_if<InputBytes>(&payload))
    return absl::StrCat("INPUT rank ", input->rank, " chunk ", input->chunk.value(), "/",
                        input->assigned);
  if (const auto* result = std::get_if<ResultBytes>(&payload))
    return absl::StrCat("RESULT chunk ", result->chunk.value(), "/", result->assigned, " mask ",
                        result->mask.bits());
  const Frame& frame = std::get<Frame>(payload);
  std::string name(KindOf(frame));
  std::visit(
      [&name](const auto& body) {
        if constexpr (requires { body.ballot; }) absl::StrAppend(&name, " ", body.ballot);
        if constexpr (requires { body.rank; }) absl::StrAppend(&name, " rank ", body.rank);
        if constexpr (requires { body.members.bits(); })
          absl::StrAppend(&name, " S ", body.members.bits());
        if constexpr (requires { body.promised; }) absl::StrAppend(&name, " ", body.promised);
        if constexpr (requires { body.assigned; })
          absl::StrAppend(&name, " /", body.assigned, " x", body.chunks.size());
      },
      frame.body);
  return name;
}

}  // namespace

RoundWorld::RoundWorld(WorldOptions options) : options_(options), rng_(options.seed) {
  instance_ = *InstanceId::From(Sha256(AsBytes("instance")).view().first(InstanceId::kBytes));
  schema_ = Sha256(AsBytes("schema"));
  MakeGroup();
}

void RoundWorld::MakeGroup() {
  const int members =
      options_.members > 0 ? options_.members : 2 + static_cast<int>(rng_.Uniform(5));
  const int holes = options_.holes >= 0 ? options_.holes : static_cast<int>(rng_.Uniform(3));
  const bool later = options_.later_round && rng_.Bernoulli(0.5);
  const int ranks = members + holes;
  std::vector<int> hole(static_cast<size_t>(ranks), 0);
  std::fill_n(hole.begin(), holes, 1);
  rng_.Shuffle(hole);
  const size_t elements = static_cast<size_t>(1 + rng_.Uniform(4)) * 4;
  int speaker = kSpeakerBase;
  std::vector<std::optional<double>> bandwidths;
  RankSet mask;
  for (int r = 0; r < ranks; ++r) {
    const auto index = static_cast<size_t>(r);
    RoundCell cell;
    if (hole[index] == 0) {
      cell.member = TestPeer(r);
      rank_of_[*cell.member] = r;
      mask.Insert(r);
    }
    bandwidths.push_back(hole[index] != 0 ? 0.0 : 1.0 + static_cast<double>(rng_.Uniform(3)));
    std::vector<double> values;
    for (size_t i = 0; i < elements; ++i) values.push_back(rng_.Normal());
    values_.push_back(values);
    weights_.push_back(rng_.Bernoulli(0.1) ? 0.0 : 1.0 + static_cast<double>(rng_.Uniform(50)));
    const uint64_t stand_ins = later ? rng_.Uniform(4) : 0;
    for (uint64_t k = 0; k < stand_ins; ++k) {
      cell.speakers.insert(TestPeer(speaker));
      spoken_[TestPeer(speaker)] = r;
      ++speaker;
    }
    cells_.push_back(cell);
  }
  const auto shares = PartSizes(elements, bandwidths, 0);
  CHECK(shares.ok());
  chunks_ = MakeChunks(*shares, mask, kChunkElements);
  int outside = options_.outside_witnesses;
  if (outside < 0) outside = rng_.Bernoulli(0.4) ? 3 + static_cast<int>(rng_.Uniform(3)) : 0;
  for (int w = 0; w < outside; ++w) {
    witnesses_.push_back(TestPeer(kWitnessBase + w));
    tables_.emplace(witnesses_.back(), WitnessTable());
  }
  if (outside == 0)
    for (const auto& [peer, rank] : rank_of_) witnesses_.push_back(peer);
  const PlanRule rule = RuleOf(options_.bug);
  for (const auto& [peer, rank] : rank_of_)
    hosts_[rank] =
        std::make_unique<RoundHost>(SpecOf(rank), values_[static_cast<size_t>(rank)], rule);
  for (const auto& [peer, rank] : spoken_) {
    const auto index = static_cast<size_t>(rank);
    SpeakerSpec spec{
        instance_, rank, cells_, chunks_, {.weight = weights_[index], .samples = 0, .before = {}},
        schema_};
    speakers_[peer] = std::make_unique<Speaker>(spec);
  }
  for (const auto& [rank, host] : hosts_) host->first_flip_only = options_.bug == Bug::kApplyEarly;
  if (options_.bug == Bug::kFoldOnArrival) hosts_.begin()->second->arrival_fold = true;
  if (options_.bug == Bug::kFoldBackwards) hosts_.begin()->second->reverse_fold = true;
}

RoundSpec RoundWorld::SpecOf(int rank) const {
  RoundSpec spec;
  spec.instance = instance_;
  spec.self = rank;
  spec.cells = cells_;
  spec.witnesses = witnesses_;
  spec.chunks = chunks_;
  spec.stake.weight = weights_[static_cast<size_t>(rank)];
  spec.schema = schema_;
  spec.window_chunks = 2;
  spec.max_window_chunks = 4;
  return spec;
}

void RoundWorld::Trace(const std::string& what) const {
  if (options_.trace) printf("%6lu %s\n", static_cast<unsigned long>(now_), what.c_str());
}

// ---- the network ------------------------------------------------------------------------------
void RoundWorld::Post(const PeerId& from, const PeerId& to, Payload payload) {
  if (Tamper(from, to, payload)) return;
  if (options_.codec) {
    if (auto* frame = std::get_if<Frame>(&payload)) {
      const std::optional<Frame> read = DecodeFrame(EncodeFrame(*frame));
      if (!read || *read != *frame) return Fail("codec changed a frame");
    }
  }
  Watch(from, payload);
  Trace(absl::StrCat(from.brief(), " > ", to.brief(), " ", NameOf(payload)));
  if (rng_.Bernoulli(loss_)) return;
  const int copies = rng_.Bernoulli(duplicate_) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    // Now and then a frame is very late: after the ballot, or after the end.
    const uint64_t delay = 1 + rng_.Uniform(slow_) + (rng_.Bernoulli(0.03) ? 150 : 0);
    At(delay, [this, from, to, payload] { Deliver(from, to, payload); });
  }
}

void RoundWorld::Deliver(const PeerId& from, const PeerId& to, const Payload& payload) {
  if (dead_.count(to) > 0) return;
  const auto rank = rank_of_.find(to);
  if (rank != rank_of_.end()) return DeliverToMember(HostAt(rank->second), from, payload);
  if (speakers_.count(to) > 0) return DeliverToSpeaker(to, from, payload);
  if (tables_.count(to) > 0) DeliverToWitness(to, from, payload);
}

void RoundWorld::DeliverToMember(RoundHost& host, const PeerId& from, const Payload& payload) {
  RoundActions out;
  if (const auto* frame = std::get_if<Frame>(&payload)) {
    host.round.OnFrame(from, *frame, out);
    if (options_.bug == Bug::kHalfIsEnough) MakeHalfEnough(from, TestPeer(host.self()), *frame);
  } else if (const auto* input = std::get_if<InputBytes>(&payload)) {
    tally_.bytes += input->values.size();
    if (host.round.OnInput(from, input->rank, input->chunk, input->assigned, out))
      host.Keep(*input);
  } else {
    const ResultBytes& result = std::get<ResultBytes>(payload);
    tally_.bytes += result.values.size();
    host.offered = result.values;
    if (HashOfValues(result.values) != result.hash)
      return Fail("S6 a result was served that is not what its hash says");
    host.round.OnResult(from, result.chunk, {result.assigned, result.mask, result.hash}, out);
    if (options_.bug == Bug::kStoreUntold && !host.round.over()) {
      const ChunkSpan& span = host.Span(result.chunk);
      std::copy(result.values.begin(), result.values.end(),
                host.output.begin() + static_cast<std::ptrdiff_t>(span.begin));
    }
  }
  Run(host, out);
}

void RoundWorld::DeliverToSpeaker(const PeerId& self, const PeerId& from, const Payload& payload) {
  const auto* frame = std::get_if<Frame>(&payload);
  if (frame == nullptr) return;
  SpeakerActions out;
  speakers_.at(self)->OnFrame(from, *frame, out);
  for (const SpeakerAction& action : out) {
    if (const auto* send = std::get_if<SendFrame>(&action)) {
      Post(self, send->to, send->frame);
      continue;
    }
    const SpeakInput& input = std::get<SpeakInput>(action);
    const ChunkSpan& span = chunks_[input.chunk.value()];
    const auto begin =
        values_[static_cast<size_t>(input.rank)].begin() + static_cast<std::ptrdiff_t>(span.begin);
    Post(self, input.to,
         InputBytes{input.rank, input.chunk, input.assigned, {begin, begin + span.count}});
  }
}

void RoundWorld::DeliverToWitness(const PeerId& self, const PeerId& from, const Payload& payload) {
  const auto* frame = std::get_if<Frame>(&payload);
  if (frame == nullptr) return;
  if (options_.bug == Bug::kWitnessForgets) tables_[self] = WitnessTable();
  for (const SendFrame& answer : AnswerAsWitness(tables_.at(self), from, *frame))
    Post(self, answer.to, answer.frame);
}

void RoundWorld::Run(RoundHost& host, const RoundActions& actions) {
  const PeerId self = TestPeer(host.self());
  host.Execute(
      actions, [&](const PeerId& to, Payload payload) { Post(self, to, std::move(payload)); },
      [&](ChunkIndex chunk, Ballot assigned, uint64_t hash) {
        At(rng_.Uniform(2), [this, &host, chunk, assigned, hash] {
          if (dead_.count(TestPeer(host.self())) > 0) return;
          RoundActions out;
          host.round.OnFolded(chunk, assigned, hash, out);
          Run(host, out);
        });
      });
  if (host.outcome && host.ends == 1 && options_.trace)
    Trace(absl::StrCat(self.brief(), " is over: ", static_cast<int>(host.outcome->outcome)));
  if (host.ends > 1) Fail("a round ended twice");
  CheckWaiting(host);
  if (options_.bug == Bug::kApplyEarly && host.flips == 0 && SlotsFull(host, 0)) host.Flip();
  if (options_.bug == Bug::kFastAfterStatus) HaveAfterStatus(host);
  if (options_.bug == Bug::kFlagEarly && host.flips == 0 && SlotsFull(host, 1)) host.Flip();
  if (host.outcome && Applied(host.outcome->outcome) && host.flips > 0) CheckApplied(host);
}

// ---- faults -----------------------------------------------------------------------------------
void RoundWorld::Suspect(int observer, const PeerId& peer, SuspicionCause cause) {
  RoundHost& host = HostAt(observer);
  if (dead_.count(TestPeer(observer)) > 0 || peer == TestPeer(observer)) return;
  doubts_.insert({observer, peer});
  Trace(absl::StrCat(TestPeer(observer).brief(), " suspects ", peer.brief()));
  RoundActions out;
  host.round.OnSuspect(peer, cause, out);
  Run(host, out);
}

void RoundWorld::Crash(const PeerId& peer) {
  if (!dead_.insert(peer).second) return;
  ++tally_.dead;
  Trace(absl::StrCat(peer.brief(), " crashes"));
  for (const auto& [rank, host] : hosts_) {
    const int observer = rank;
    At(1 + rng_.Uniform(60),
       [this, observer, peer] { Suspect(observer, peer, SuspicionCause::kReset); });
  }
}

void RoundWorld::Chaos() {
  const double choices[] = {0, 0, 0.02, 0.1, 0.3};
  loss_ = options_.loss >= 0 ? options_.loss : choices[rng_.Uniform(5)];
  duplicate_ = rng_.Bernoulli(0.5) ? 0.1 : 0;
  slow_ = rng_.Bernoulli(0.5) ? 4 : 40;
  const bool faults = rng_.Bernoulli(0.9) && !options_.calm;
  for (const auto& [rank, host] : hosts_) {
    const int self = rank;
    At(rng_.Uniform(slow_), [this, self] {
      if (dead_.count(TestPeer(self)) > 0) return;
      RoundActions out;
      HostAt(self).round.Start(out);
      Run(HostAt(self), out);
    });
    if (faults && rng_.Bernoulli(options_.crash))
      At(rng_.Uniform(rng_.Bernoulli(0.5) ? 40 : kChaos), [this, self] { Crash(TestPeer(self)); });
  }
  for (const auto& [peer, speaker] : speakers_) {
    const PeerId self = peer;
    if (faults && rng_.Bernoulli(0.2)) At(rng_.Uniform(60), [this, self] { Crash(self); });
  }
  for (const auto& [peer, table] : tables_) {
    const PeerId self = peer;
    if (faults && rng_.Bernoulli(0.2)) At(rng_.Uniform(kChaos), [this, self] { Crash(self); });
  }
  Rng windows = rng_.Fork("windows");
  for (const auto& [sender, host] : hosts_) {
    const int self = sender;
    for (const auto& [peer, rank] : rank_of_) {
      const PeerId owner = peer;
      const auto chunks = static_cast<uint32_t>(1 + windows.Uniform(5));
      At(windows.Uniform(60), [this, self, owner, chunks] { SetWindow(self, owner, chunks); });
    }
  }
  if (!faults) return;
  for (const auto& [observer, host] : hosts_) {
    for (const auto& [peer, rank] : rank_of_) {
      if (!rng_.Bernoulli(options_.false_suspicion)) continue;
      const int by = observer;
      const PeerId whom = peer;
      const uint64_t when = rng_.Uniform(kChaos);
      At(when, [this, by, whom] { Suspect(by, whom, SuspicionCause::kSilence); });
    }
    const int self = observer;
    for (uint64_t i = rng_.Uniform(3); i > 0; --i)
      At(rng_.Uniform(kChaos), [this, self] { Late(self); });
    if (rng_.Bernoulli(0.03))
      At(rng_.Uniform(kChaos), [this, self] {
        if (dead_.count(TestPeer(self)) > 0) return;
        RoundActions out;
        rng_.Bernoulli(0.5) ? HostAt(self).round.OnLeave(out) : HostAt(self).round.OnSitOut(out);
        Run(HostAt(self), out);
      });
  }
}

void RoundWorld::SetWindow(int rank, const PeerId& owner, uint32_t chunks) {
  if (dead_.count(TestPeer(rank)) > 0) return;
  RoundActions out;
  HostAt(rank).round.OnWindow(owner, chunks, out);
  Run(HostAt(rank), out);
}

void RoundWorld::Late(int rank) {
  if (dead_.count(TestPeer(rank)) > 0) return;
  RoundActions out;
  Trace(absl::StrCat(TestPeer(rank).brief(), " is late"));
  HostAt(rank).round.OnCoordinatorLate(out);
  Run(HostAt(rank), out);
}

// From here on: no crash, no loss, accurate suspicion, and whoever is stuck is told so in turn.
void RoundWorld::Heal() {
  healing_ = true;
  Trace("healing");
  loss_ = duplicate_ = 0;
  slow_ = 4;
  for (const auto& [observer, host] : hosts_) {
    if (dead_.count(TestPeer(observer)) > 0) continue;
    for (const auto& [who, peer] : doubts_) {
      if (who != observer || dead_.count(peer) > 0) continue;
      RoundActions out;
      host->round.OnTrusted(peer, out);
      Run(*host, out);
    }
    for (const PeerId& peer : dead_) Suspect(observer, peer, SuspicionCause::kReset);
  }
  doubts_.clear();
}

bool RoundWorld::Settled() const {
  for (const auto& [rank, host] : hosts_)
    if (dead_.count(TestPeer(rank)) == 0 && !host->round.over()) return false;
  return true;
}

std::string RoundWorld::Run() {
  Chaos();
  std::map<int, uint64_t> progress;
  uint64_t next_late = kChaos + 400;
  while (failure_.empty()) {
    const bool drained = queue_.empty();
    if (!healing_ && (drained || queue_.begin()->first.first > kChaos)) {
      now_ = std::max(now_, kChaos);
      Heal();
      continue;
    }
    if (drained || queue_.begin()->first.first > next_late) {
      now_ = std::max(now_, next_late);
      if (Settled() || !QuorumLives() || now_ > kHealed) break;
      // One at a time, in turn, as back-off makes it in the end.
      next_late = now_ + 400;
      for (const auto& [rank, host] : hosts_) {
        if (dead_.count(TestPeer(rank)) > 0 || host->round.over()) continue;
        Late(rank);
        ++tally_.late;
        break;
      }
      continue;
    }
    const auto event = queue_.begin();
    now_ = event->first.first;
    const std::function<void()> run = std::move(event->second);
    queue_.erase(event);
    run();
    ++tally_.events;
  }
  if (failure_.empty()) CheckEnd();
  return failure_;
}

}  // namespace crowdsurf::worker::testing
