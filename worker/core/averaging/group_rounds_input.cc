// What arrives at the open rounds: frames, deadlines; and speaking for holes
// (group_rounds.h).
#include <algorithm>

#include "worker/core/averaging/group_rounds.h"
#include "worker/core/port/config.h"
#include "worker/core/port/messages.h"
#include "worker/core/port/peer_metrics.h"
#include "worker/core/round/round_codec.h"
#include "worker/core/round/round_witness.h"
#include "worker/core/view/stand_in.h"

namespace crowdsurf::worker {
namespace {

bool AnybodyIn(const Seating& seating, CellIndex cell, size_t axis) {
  const auto group = GroupCells(seating.view().grid, cell, axis);
  return std::any_of(group.begin(), group.end(),
                     [&](CellIndex c) { return seating.At(c) != nullptr; });
}

}  // namespace

// ---- speaking

void GroupRounds::OpenDuties(Actions& out) {
  const Opening& opening = current_->opening;
  if (!opening.stand_ins) return;
  const GroupQuestion question = QuestionOf(opening);
  for (const SpeakerDuty& duty : DutiesOf(current_->seating, current_->cell, opening.round)) {
    // Nobody to hear it otherwise.
    if (!AnybodyIn(current_->seating, duty.hole, opening.axis)) continue;
    const GroupPlan plan = PlanOf(current_->seating, duty.hole, question);
    const auto rank = std::find(plan.ranks.begin(), plan.ranks.end(), duty.hole);
    Speak(plan, static_cast<int>(rank - plan.ranks.begin()), out);
  }
}

void GroupRounds::Speak(const GroupPlan& plan, int rank, Actions& out) {
  const Opening& opening = current_->opening;
  SpeakerSpec spec{.instance = plan.instance,
                   .rank = rank,
                   .cells = plan.cells,
                   .chunks = plan.chunks,
                   .stake = opening.stake,
                   .root = opening.holds};
  const auto [at, fresh] = speaking_.emplace(
      plan.instance, Speaking{.speaker = Speaker(std::move(spec)),
                              .region = opening.from,
                              .wire = WireOf(opening),
                              .like = {.view = view_.hash,
                                       .epoch = view_.epoch,
                                       .averaging = opening.averaging,
                                       .round = static_cast<uint8_t>(opening.round),
                                       .group = plan.group,
                                       .frame = {}}});
  if (!fresh) return;
  SpeakerActions actions;
  at->second.speaker.Start(actions);
  Perform(plan.instance, at->second, actions, out);
}

// An owner asks for a member that was lost in this round: its class speaks for it.
void GroupRounds::LateDuty(const PeerId& from, const message::RoundFrame& message,
                           const Frame& frame, Actions& out) {
  const auto* ask = std::get_if<Ask>(&frame.body);
  const bool under_way = ask != nullptr && current_ && current_->opening.stand_ins &&
                         current_->opening.round > 0 &&
                         message.averaging == current_->opening.averaging &&
                         message.round == current_->opening.round &&
                         message.group < current_->seating.view().grid.cells();
  if (!under_way) {
    // The values of that round are gone, or never were: who asks must not wait for them.
    if (ask != nullptr)
      SendTo(from, Frame{frame.instance, Bye{ByeReason::kCannotSpeak}}, message, out);
    return metrics_.RefuseFrame(FrameRefusal::kUnknownInstance);
  }
  const auto list = current_->lists.find(message.group);
  const Seating& seating = list == current_->lists.end() ? current_->seating : list->second;
  if (seating.CellOf(config_.id) != current_->cell) {
    // By these seats it is in another class than the one whose mean it holds.
    SendTo(from, Frame{frame.instance, Bye{ByeReason::kCannotSpeak}}, message, out);
    return metrics_.RefuseFrame(FrameRefusal::kNotASpeaker);
  }
  std::optional<GroupPlan> known;
  if (AnybodyIn(seating, message.group, current_->opening.axis))
    known = PlanOf(seating, message.group, QuestionOf(current_->opening));
  if (!known || known->instance != frame.instance) {
    metrics_.RefuseFrame(FrameRefusal::kOtherList);
    if (early_.size() >= kMaxEarly) return;
    Keep(from, message);  // answered when its list has come
    out.push_back(Send{from, EncodeMessage(message::ListAsk{frame.instance})});
    return;
  }
  const GroupPlan& plan = *known;
  if (ask->rank >= plan.cells.size() || !plan.RankOf(from) ||
      !plan.cells[ask->rank].speakers.contains(config_.id))
    return metrics_.RefuseFrame(FrameRefusal::kNotASpeaker);
  Speak(plan, ask->rank, out);
  const auto at = speaking_.find(frame.instance);
  SpeakerActions actions;
  at->second.speaker.OnFrame(from, frame, actions);
  Perform(frame.instance, at->second, actions, out);
}

void GroupRounds::Perform(const InstanceId& id, Speaking& speaking, SpeakerActions& actions,
                          Actions& out) {
  const SpeakerSpec& spec = speaking.speaker.spec();
  for (const SpeakerAction& action : actions) {
    if (const auto* send = std::get_if<SendFrame>(&action)) {
      SendTo(send->to, send->frame, speaking.like, out);
      continue;
    }
    const auto& input = std::get<SpeakInput>(action);
    out.push_back(SpeakChunk{.instance = id,
                             .region = speaking.region,
                             .to = input.to,
                             .rank = input.rank,
                             .chunk = input.chunk,
                             .assigned = input.assigned,
                             .span = spec.chunks[input.chunk.value()],
                             .wire = speaking.wire});
  }
}

// ---- frames

void GroupRounds::OnFrame(Time now, const PeerId& from, const message::RoundFrame& message,
                          Actions& out) {
  const auto frame = DecodeFrame(message.frame);
  if (!frame) return metrics_.RefuseFrame(FrameRefusal::kGarbled);
  // An open Round answers in all its roles: its register is lent to it (WitnessTable::Lend).
  if (const auto at = instances_.find(frame->instance); at != instances_.end()) {
    RoundActions actions;
    at->second.round.OnFrame(from, *frame, actions);
    at->second.pacer.Observe(now, at->second.round);
    Perform(now, at->second, actions, out);
    return;
  }
  const bool ballot = std::holds_alternative<BallotOpen>(frame->body) ||
                      std::holds_alternative<Accept>(frame->body);
  if (ballot) return Witness(from, *frame, message, out);  // a stand-in may be a witness as well
  if (const auto at = speaking_.find(frame->instance); at != speaking_.end()) {
    SpeakerActions actions;
    at->second.speaker.OnFrame(from, *frame, actions);
    Perform(frame->instance, at->second, actions, out);
    return;
  }
  Unknown(now, from, message, *frame, out);
}

void GroupRounds::Unknown(Time now, const PeerId& from, const message::RoundFrame& message,
                          const Frame& frame, Actions& out) {
  // What was decided there is overwritten here by now: who asks for it must not wait for it.
  const bool fetch = std::holds_alternative<Fetch>(frame.body);
  const bool ready = std::holds_alternative<Ready>(frame.body);
  if (message.view != view_.hash) {
    // Nor does this peer open a round of the view before its own, or speak in one, any more.
    const bool parent = message.view == previous_.hash;
    if (fetch || (parent && ready))
      SendTo(from, Frame{frame.instance, Bye{ByeReason::kSatOut}}, message, out);
    if (parent && std::holds_alternative<Ask>(frame.body))
      SendTo(from, Frame{frame.instance, Bye{ByeReason::kCannotSpeak}}, message, out);
    return metrics_.RefuseFrame(FrameRefusal::kOtherView);
  }
  const bool later =
      message.averaging >= min_ && (!current_ || message.averaging > current_->opening.averaging ||
                                    (message.averaging == current_->opening.averaging &&
                                     message.round > current_->opening.round));
  if (later) {
    // It says that its sender lives now, and comes again. Kept, it would take the place of a READY.
    if (std::holds_alternative<Beat>(frame.body)) return;
    if (ready && calls_.size() < kMaxEarly)
      calls_.try_emplace(frame.instance, Call{message.averaging, now});
    return Keep(from, message);
  }
  for (auto& [id, instance] : instances_) {
    if (instance.opening.averaging != message.averaging ||
        instance.opening.round != message.round || instance.group != message.group)
      continue;
    return OtherList(from, instance, out);
  }
  if (fetch || (ready && message.averaging < min_))
    SendTo(from, Frame{frame.instance, Bye{ByeReason::kSatOut}}, message, out);
  LateDuty(from, message, frame, out);
}

bool GroupRounds::Declines(const PeerId& from, const message::RoundFrame& message, Actions& out) {
  if (message.averaging >= min_) return false;
  const auto frame = DecodeFrame(message.frame);
  if (!frame) {
    metrics_.RefuseFrame(FrameRefusal::kGarbled);
    return true;
  }
  metrics_.RefuseFrame(FrameRefusal::kOtherView);
  const bool values =
      std::holds_alternative<Ready>(frame->body) || std::holds_alternative<Fetch>(frame->body);
  if (values) SendTo(from, Frame{frame->instance, Bye{ByeReason::kSatOut}}, message, out);
  if (std::holds_alternative<Ask>(frame->body))
    SendTo(from, Frame{frame->instance, Bye{ByeReason::kCannotSpeak}}, message, out);
  return true;
}

// It is in this group's round under another list, to which it is bound: values have moved by it.
bool GroupRounds::InOtherList(const message::RoundFrame& message) const {
  return std::any_of(instances_.begin(), instances_.end(), [&](const auto& entry) {
    const Instance& instance = entry.second;
    return instance.view == message.view && instance.opening.averaging == message.averaging &&
           instance.opening.round == message.round && instance.group == message.group &&
           !IsPristine(instance);
  });
}

// The same group in the same round under another list. Nothing has left us: seats are exchanged and
// both plan anew. Else the other one takes our list, if it can.
void GroupRounds::OtherList(const PeerId& from, Instance& instance, Actions& out) {
  metrics_.RefuseFrame(FrameRefusal::kOtherList);
  if (IsPristine(instance)) {
    differing_.insert(from);
    return;
  }
  if (!instance.told_list.insert(from).second) return;
  SendList(from, instance, out);
}

void GroupRounds::SendList(const PeerId& to, const Instance& instance, Actions& out) const {
  const Seating& seating = instance.seating;
  out.push_back(
      Send{to, EncodeMessage(message::ListInUse{
                   .view = instance.view,
                   .averaging = instance.opening.averaging,
                   .round = static_cast<uint8_t>(instance.opening.round),
                   .group = instance.group,
                   .seats = {seating.seats().begin(), seating.seats().end()},
                   .vacancies = {seating.vacancies().begin(), seating.vacancies().end()}})});
}

void GroupRounds::OnListAsk(const PeerId& from, const message::ListAsk& ask, Actions& out) const {
  const auto at = instances_.find(ask.instance);
  if (at != instances_.end()) SendList(from, at->second, out);
}

void GroupRounds::OnListInUse(Time now, const message::ListInUse& list,
                              const std::set<PeerId>& down, Actions& out) {
  const bool present =
      current_ && list.view == view_.hash && list.averaging == current_->opening.averaging &&
      list.round == current_->opening.round && list.group < current_->seating.view().grid.cells();
  if (!present) return;
  Seating seating(current_->seating.view(), current_->seating.hash());
  seating.Merge(list.seats, list.vacancies);
  const auto group = GroupCells(seating.view().grid, list.group, current_->opening.axis);
  if (std::find(group.begin(), group.end(), current_->cell) == group.end()) {
    // A group that this peer does not sit in: it may have to speak for a hole there (LateDuty).
    if (!AnybodyIn(seating, list.group, current_->opening.axis)) return;
    current_->lists[list.group] = std::move(seating);
    return ReplayEarly(now, out);
  }
  // Values have moved by the own list already.
  if (!pristine()) return;
  // By their list this peer has no seat, or another one, in this averaging.
  if (seating.CellOf(config_.id) != current_->cell) {
    unlisted_ = true;
    return;
  }
  Replan(now, seating, down, out);
  // The others have moved values by this list, so later seats do not change it.
  for (auto& [id, instance] : instances_)
    if (!instance.round.over()) instance.pinned = true;
}

void GroupRounds::Keep(const PeerId& from, const message::RoundFrame& message) {
  early_.push_back({from, message});
  early_bytes_ += message.frame.size();
  while (early_.size() > kMaxEarly || early_bytes_ > kMaxEarlyBytes) {
    early_bytes_ -= early_.front().message.frame.size();
    early_.pop_front();
    metrics_.RefuseFrame(FrameRefusal::kTooEarly);
  }
}

Time GroupRounds::BegunAt(Time now, const InstanceId& id) const {
  const auto call = calls_.find(id);
  return call == calls_.end() ? now : call->second.at;
}

std::deque<GroupRounds::Early> GroupRounds::TakeEarly() {
  early_bytes_ = 0;
  return std::exchange(early_, {});
}

void GroupRounds::ReplayEarly(Time now, Actions& out) {
  std::erase_if(calls_, [&](const auto& call) { return call.second.averaging < min_; });
  for (const Early& early : TakeEarly()) {
    if (early.message.view != view_.hash) continue;
    OnFrame(now, early.from, early.message, out);
  }
}

void GroupRounds::AnswerPassed(Time now, Actions& out) {
  for (const Early& early : TakeEarly()) {
    const bool passed = early.message.view != view_.hash || early.message.averaging < min_;
    if (!passed) {
      Keep(early.from, early.message);
    } else if (const auto frame = DecodeFrame(early.message.frame)) {
      Unknown(now, early.from, early.message, *frame, out);
    }
  }
}

void GroupRounds::Witness(const PeerId& from, const Frame& frame,
                          const message::RoundFrame& message, Actions& out) {
  const KnownView& known = message.view == view_.hash ? view_ : previous_;
  if (known.hash.none() || message.view != known.hash ||
      std::find(known.witnesses.begin(), known.witnesses.end(), config_.id) ==
          known.witnesses.end())
    return metrics_.RefuseFrame(FrameRefusal::kNotAWitness);
  const auto* open = std::get_if<BallotOpen>(&frame.body);
  const RegisterAge& age = open != nullptr ? open->age : std::get<Accept>(frame.body).age;
  // What is kept for how long follows from the age, so it must be that of the round.
  if (age != RegisterAge{known.epoch, message.averaging, message.round})
    return metrics_.RefuseFrame(FrameRefusal::kWrongAge);
  if (open != nullptr) {
    if (open->branch) return metrics_.RefuseFrame(FrameRefusal::kBranch);
    // A member that went on, never was in this averaging, or is in it by another list of the seats
    // is a witness only: nobody may wait for its STATUS.
    if (message.averaging < min_ || message.view != view_.hash ||
        Counted(frame.instance, config_.id) || InOtherList(message))
      SendTo(from, Frame{frame.instance, Bye{ByeReason::kSatOut}}, message, out);
  }
  const uint64_t full = table_.full();
  // A vote of this peer for itself has no Round here that could count it.
  for (const SendFrame& answer : AnswerAsWitness(table_, from, frame))
    if (answer.to != config_.id) SendTo(answer.to, answer.frame, message, out);
  if (table_.full() > full) metrics_.RefuseFrame(FrameRefusal::kWitnessFull);
}

// ---- deaths, deadlines

void GroupRounds::OnPeerDown(Time now, const PeerId& peer, SuspicionCause cause, Actions& out) {
  for (auto& [id, instance] : instances_) {
    if (instance.round.over()) continue;
    RoundActions actions;
    instance.round.OnSuspect(peer, cause, actions);
    instance.pacer.OnDown(now, peer);
    instance.pacer.Observe(now, instance.round);
    Perform(now, instance, actions, out);
  }
}

void GroupRounds::OnRenewed(Time now, const PeerId& peer, Actions& out) {
  for (auto& [id, instance] : instances_) {
    if (instance.round.over()) continue;
    RoundActions actions;
    instance.round.OnRenewed(peer, actions);
    instance.pacer.Observe(now, instance.round);
    Perform(now, instance, actions, out);
  }
}

void GroupRounds::StopGathering(Time now, Actions& out) {
  for (auto& [id, instance] : instances_) instance.pacer.StartBy(now);
  OnTimer(now, out);
}

void GroupRounds::OnTimer(Time now, Actions& out) {
  for (auto& [id, instance] : instances_) {
    if (instance.round.over()) continue;
    RoundActions actions;
    for (const Due& due : instance.pacer.TakeDue(now, instance.round))
      Apply(due, instance.round, actions);
    instance.pacer.Observe(now, instance.round);
    Perform(now, instance, actions, out);
  }
}

Time GroupRounds::NextDeadline() const {
  Time next = Time::Infinite();
  for (const auto& [id, instance] : instances_)
    if (!instance.round.over()) next = std::min(next, instance.pacer.NextDeadline(instance.round));
  return next;
}

}  // namespace crowdsurf::worker
