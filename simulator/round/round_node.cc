#include "simulator/round/round_node.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "worker/core/round/round_witness.h"

namespace crowdsurf::simulator {

using worker::Ballot;
using worker::ChunkArrived;
using worker::FoldChunk;
using worker::Frame;
using worker::Round;
using worker::RoundAction;
using worker::RoundActions;

RoundNode::RoundNode(const ProcessName& name, const RoundScenario& scenario, RoundOutside& outside,
                     Origins& origins)
    : Process(name, outside.queue(), nullptr),
      scenario_(scenario),
      outside_(outside),
      chunks_(name.node, origins, outside.checkers()),
      times_(scenario.pacing) {}

void RoundNode::BeMember(worker::RoundSpec spec, RegionBuffer input, worker::CoordinateMask mask) {
  spec_ = std::move(spec);
  mask_ = std::move(mask);
  input_ = std::move(input);
  output_.Resize(input_.values.size());
}

void RoundNode::BeSpeaker(std::vector<worker::SpeakerSpec> duties, RegionBuffer values) {
  input_ = std::move(values);
  for (worker::SpeakerSpec& duty : duties) speakers_.emplace_back(std::move(duty));
}

// It has not given up, so that others may count on what its slots hold.
bool RoundNode::Holding() const {
  return alive() && round_ && (!round_->outcome() || worker::Applied(round_->outcome()->outcome));
}

void RoundNode::Start() {
  Do([this] {
    if (spec_ && snapshot_after_ == Duration()) OpenRound();
    for (worker::Speaker& speaker : speakers_) {
      worker::SpeakerActions actions;
      speaker.Start(actions);
      ExecuteSpeaker(actions, speaker);
    }
  });
  // The snapshot is late: the round opens when it is there.
  if (spec_ && snapshot_after_ > Duration()) DoAfter(snapshot_after_, [this] { OpenRound(); });
}

void RoundNode::OpenRound() {
  worker::RoundSpec spec = *spec_;
  // As in an agent: the register of an open round is lent to it.
  const auto lent = table_.Lend(worker::RegisterId::Round(spec.instance), spec.age);
  CHECK(lent.has_value());
  spec.promised = *lent;
  const bool ignored = scenario_.plant == Plant::kIgnoredMask && scenario_.planted == index();
  chunks_.Open(kRound, {spec.instance, spec.self, spec.chunks, scenario_.wire, &input_, &output_,
                        spec.stake.weight, ignored ? worker::CoordinateMask() : mask_});
  round_.emplace(spec);
  pacer_.emplace(now(), times_);
  RoundActions actions;
  round_->Start(actions);
  AfterInput(actions);
  // What came before the round was open, in the order it came.
  for (const auto& [from, frame] : std::exchange(early_, {})) OnFrame(from, frame);
  for (const auto& [from, frame] : std::exchange(early_chunks_, {})) OnChunk(from, frame);
}

void RoundNode::OnFrame(const PeerId& from, const Frame& frame) {
  Do([this, from, frame] {
    times_.OnHeard(now(), from);
    if (!spec_) {
      worker::SpeakerActions actions;
      for (worker::Speaker& speaker : speakers_) {
        actions.clear();
        speaker.OnFrame(from, frame, actions);
        ExecuteSpeaker(actions, speaker);
      }
      return AnswerAsWitness(from, frame);
    }
    if (!round_) {
      // As an agent keeps no BEAT.
      if (!std::holds_alternative<worker::Beat>(frame.body)) early_.emplace_back(from, frame);
      return;
    }
    RoundActions actions;
    // Any frame shows that a suspect lives.
    if (suspected_.erase(from) > 0) round_->OnTrusted(from, actions);
    round_->OnFrame(from, frame, actions);
    AfterInput(actions);
  });
}

void RoundNode::OnChunk(const PeerId& from, const ChunkFrame& frame) {
  Do([this, from, frame] {
    times_.OnHeard(now(), from);
    if (!spec_) return;
    if (!round_) {
      early_chunks_.emplace_back(from, frame);
      return;
    }
    if (frame.result)
      TakeResult(from, frame);
    else
      TakeInput(from, frame);
  });
}

void RoundNode::TakeResult(const PeerId& from, const ChunkFrame& frame) {
  // As in the data plane: what is garbled never reaches the round.
  const uint64_t key = worker::ContentKey(spec_->instance);
  if (!chunks_.IsSound(kRound, ChunkArrived::Kind::kResult, frame.chunk, frame.parcel)) return;
  if (ContentHash(frame.parcel.wire, key) != frame.hash) return;
  RoundActions actions;
  offered_ = &frame;
  round_->OnResult(from, frame.chunk, {frame.assigned, frame.mask, frame.hash}, actions);
  AfterInput(actions);
  offered_ = nullptr;
}

void RoundNode::TakeInput(const PeerId& from, const ChunkFrame& frame) {
  RoundActions actions;
  if (!chunks_.IsSound(kRound, ChunkArrived::Kind::kInput, frame.chunk, frame.parcel)) {
    round_->OnBadInput(from, frame.rank, frame.chunk, frame.assigned, actions);
  } else if (chunks_.HasRoom(frame.parcel)) {
    Parcel parcel = frame.parcel;
    if (scenario_.plant == Plant::kForeignInput && scenario_.planted == index())
      parcel.wire[0] ^= 1;
    // The bytes must be there before the actions run; they are dropped again when not wanted.
    if (round_->OnInput(from, frame.rank, frame.chunk, frame.assigned, actions))
      chunks_.KeepInput(kRound, frame.rank, frame.chunk, frame.assigned, parcel);
  }
  AfterInput(actions);
}

void RoundNode::OnSuspicion(const PeerId& of, worker::SuspicionCause cause) {
  Do([this, of, cause] {
    if (!round_) return;
    suspected_.insert(of);
    RoundActions actions;
    round_->OnSuspect(of, cause, actions);
    AfterInput(actions);
  });
}

void RoundNode::OnTrust(const PeerId& of) {
  Do([this, of] {
    if (!round_ || suspected_.erase(of) == 0) return;
    RoundActions actions;
    round_->OnTrusted(of, actions);
    AfterInput(actions);
  });
}

void RoundNode::OnQuorumLost() {
  Do([this] {
    // Everybody is told, again and again; only a coordinator that cannot go on acts.
    if (!round_ || round_->over() || !round_->witness_quorum_lost()) return;
    RoundActions actions;
    round_->OnQuorumLost(actions);
    AfterInput(actions);
  });
}

void RoundNode::OnWindow(const PeerId& owner, uint32_t chunks) {
  Do([this, owner, chunks] {
    if (!round_) return;
    RoundActions actions;
    round_->OnWindow(owner, chunks, actions);
    AfterInput(actions);
  });
}

// Executes what the round answered, in order, then looks at the clock.
void RoundNode::AfterInput(RoundActions& actions) {
  for (size_t i = 0; i < actions.size(); ++i) {
    if (!Count()) return;
    // The action after RoundOver says whether a branch was formed; the checkers need both at once.
    Ballot branch = 0;
    if (i + 1 < actions.size())
      if (const auto* formed = std::get_if<worker::BranchFormed>(&actions[i + 1]))
        branch = formed->ballot;
    Execute(actions[i], branch);
  }
  Pace();
}

void RoundNode::Execute(const RoundAction& action, Ballot branch) {
  if (const auto* fold = std::get_if<FoldChunk>(&action)) {
    Fold(*fold);
  } else if (const auto* store = std::get_if<worker::StoreResult>(&action)) {
    CHECK(offered_ != nullptr && offered_->chunk == store->chunk);
    if (scenario_.plant != Plant::kSkippedStore || scenario_.planted != index())
      chunks_.Store(kRound, store->chunk, offered_->parcel);
  } else if (const auto* empty = std::get_if<worker::EmptySlot>(&action)) {
    chunks_.Empty(kRound, empty->chunk);
  } else if (const auto* drop = std::get_if<worker::DropInputs>(&action)) {
    // A fold that is under way is void with its inputs.
    folding_.erase({drop->chunk, drop->assigned});
    chunks_.Drop(kRound, drop->chunk, drop->assigned);
  } else if (const auto* over = std::get_if<worker::RoundOver>(&action)) {
    if (scenario_.plant == Plant::kCorruptOutput && scenario_.planted == index()) {
      Parcel parcel = chunks_.Result(kRound, {});
      parcel.wire[0] ^= 1;
      chunks_.Store(kRound, {}, parcel);
    }
    outside_.OnOver(index(), *over, branch);
  } else if (const auto* formed = std::get_if<worker::BranchFormed>(&action)) {
    branch_ = formed->ballot;
  } else {
    Say(action);
  }
}

void RoundNode::Say(const RoundAction& action) {
  if (const auto* send = std::get_if<worker::SendFrame>(&action)) {
    SayFrame(send->to, send->frame);
  } else if (const auto* input = std::get_if<worker::SendInput>(&action)) {
    Parcel parcel = chunks_.Input(kRound, input->chunk);
    if (scenario_.plant == Plant::kUnmaskedAgain && scenario_.planted == index() &&
        input->assigned != 0)
      parcel = PackSpan(input_, spec_->chunks[input->chunk.value()], scenario_.wire);
    if (scenario_.plant == Plant::kLieNan && scenario_.planted == index())
      std::fill(parcel.wire.begin(), parcel.wire.end(), uint8_t{0xff});  // NaN in every format
    outside_.SendChunk(index(), input->to,
                       {.rank = spec_->self,
                        .chunk = input->chunk,
                        .assigned = input->assigned,
                        .parcel = std::move(parcel)});
  } else if (const auto* result = std::get_if<worker::SendResult>(&action)) {
    ChunkFrame frame{true,
                     0,
                     result->chunk,
                     result->assigned,
                     result->mask,
                     result->hash,
                     chunks_.Result(kRound, result->chunk)};
    if (scenario_.plant == Plant::kLieResults && scenario_.planted == index()) {
      frame.parcel.wire[1] = result->to.bytes()[0];
      frame.hash = ContentHash(frame.parcel.wire, worker::ContentKey(spec_->instance));
    }
    outside_.SendChunk(index(), result->to, std::move(frame));
  }
}

void RoundNode::SayFrame(const PeerId& to, Frame frame) {
  if (scenario_.planted == index()) {
    if (auto* ready = std::get_if<worker::Ready>(&frame.body);
        ready != nullptr && scenario_.plant == Plant::kLieWeights)
      ready->stake.weight += to.bytes()[0];
    if (auto* have = std::get_if<worker::Have>(&frame.body);
        have != nullptr && scenario_.plant == Plant::kLieHaves)
      have->root = Sha256(to.view());
  }
  if (scenario_.plant == Plant::kForgedHaves && scenario_.planted == index() &&
      std::holds_alternative<worker::Have>(frame.body))
    ForgeHaves();
  // Seen as they leave, whether or not they arrive.
  if (spec_) outside_.checkers().OnFrame(index(), frame, *spec_);
  outside_.checkers().OnWitnessFrame(index(), id(), frame, witnesses_);
  outside_.SendFrame(index(), to, frame);
}

// The host lies to its own round: everybody else is said to have the value already.
void RoundNode::ForgeHaves() {
  DoAfter(Duration(), [this] {
    worker::Have have{0, Digest()};
    for (const worker::RoundCell& cell : spec_->cells) {
      if (!cell.member || *cell.member == id() || !round_) continue;
      // Its own HAVE is what it has said of itself: the same root is put into their mouths.
      have.root = outside_.checkers().LastHave(index(), spec_->instance);
      RoundActions actions;
      round_->OnFrame(*cell.member, {spec_->instance, have}, actions);
      AfterInput(actions);
    }
  });
}

void RoundNode::ExecuteSpeaker(worker::SpeakerActions& actions, const worker::Speaker& speaker) {
  for (const worker::SpeakerAction& action : actions) {
    if (!Count()) return;
    if (const auto* send = std::get_if<worker::SendFrame>(&action)) {
      SayFrame(send->to, send->frame);
      continue;
    }
    const auto& input = std::get<worker::SpeakInput>(action);
    const worker::SpeakerSpec& spec = speaker.spec();
    Parcel parcel = PackSpan(input_, spec.chunks[input.chunk.value()], scenario_.wire);
    outside_.checkers().OnSpoke(index(), spec.instance, input.rank, input.chunk, parcel);
    outside_.SendChunk(index(), input.to,
                       {.rank = input.rank,
                        .chunk = input.chunk,
                        .assigned = input.assigned,
                        .parcel = std::move(parcel)});
  }
}

// Folding takes time on other threads; a plan can cancel it.
void RoundNode::Fold(const FoldChunk& fold) {
  const uint64_t serial = next_fold_++;
  folding_[{fold.chunk, fold.assigned}] = serial;
  DoAfter(scenario_.fold_time, [this, fold, serial] { FinishFold(fold, serial); });
}

void RoundNode::FinishFold(const FoldChunk& fold, uint64_t serial) {
  const auto pending = folding_.find({fold.chunk, fold.assigned});
  // Dropped since, or begun anew for a later plan.
  if (pending == folding_.end() || pending->second != serial) return;
  folding_.erase(pending);
  FoldChunk folded = fold;
  if (scenario_.plant == Plant::kFusedFold && scenario_.planted == index())
    for (double& weight : folded.weights) weight *= 1.0 + 1e-6 * weight;
  const uint64_t hash = chunks_.Fold(kRound, folded);
  RoundActions actions;
  round_->OnFolded(fold.chunk, fold.assigned, hash, actions);
  AfterInput(actions);
}

void RoundNode::AnswerAsWitness(const PeerId& from, const Frame& frame) {
  for (const worker::SendFrame& answer : worker::AnswerAsWitness(table_, from, frame))
    if (Count()) SayFrame(answer.to, answer.frame);
}

void RoundNode::Pace() {
  if (!alive() || !round_) return;
  pacer_->Observe(now(), *round_);
  if (scenario_.plant == Plant::kDeafTimer && scenario_.planted == index()) return;
  ArmTimer(pacer_->NextDeadline(*round_));
}

void RoundNode::OnTimer() {
  for (const worker::Due& due : pacer_->TakeDue(now(), *round_)) {
    RoundActions actions;
    worker::Apply(due, *round_, actions);
    AfterInput(actions);
    if (!alive()) return;
  }
  Pace();
}

}  // namespace crowdsurf::simulator
