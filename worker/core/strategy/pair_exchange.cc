#include "worker/core/strategy/pair_exchange.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

// Until it is known how long an exchange takes. A chunk of 64 KiB passes a megabit link in half a
// second, and nothing is late before its message has left. Halved, slow links send twice; doubled,
// a chunk lost early holds a slot for twice the time.
constexpr Duration kPatience = Seconds(2);
// Then: as a transport's time-out, some deviations above the mean, and a scheduler's pause.
constexpr double kUsual = 4;
constexpr Duration kPause = Milliseconds(250);
// The end that replies repeats first: its message alone is missing then. And a model that is not
// whole is kept until its end has repeated it.
constexpr double kPusherWaits = 1.5, kFillingWaits = 4;
// The other end may wait for its trainer's next step.
constexpr double kSteps = 2;
constexpr Duration kMostOfSteps = Seconds(20);
// With a patience that doubles: a peer that is silent for fifteen times as long is given up.
constexpr int kTries = 4;

}  // namespace

// ---- the view ----------------------------------------------------------------------------------

void PairExchange::Reset(const UsePairs& use, uint64_t elements, uint32_t chunk_elements,
                         WireFormat wire) {
  CHECK_GT(chunk_elements, 0u);
  Clear();
  elements_ = elements;
  chunk_elements_ = chunk_elements;
  wire_ = wire;
  model_ = use.model;
  // number_ goes on: words of an exchange before this view fit none that follows.
  const auto make = [&](const std::vector<Region>& regions, std::vector<Slot>& slots) {
    for (const Region region : regions) {
      slots.emplace_back().region = region;
      slots.back().here.assign(chunks(), false);
    }
  };
  make(use.own, own_);
  make(use.served, served_);
  for (const PeerId& peer : use.neighbours) neighbours_[peer] = {};
  sum_of_.reserve(1);
}

void PairExchange::Clear() {
  for (const Slot& slot : own_) counters_.aborted += slot.stage != Stage::kFree;
  for (const Slot& slot : served_) {
    if (slot.stage == Stage::kFree) continue;
    ++(slot.stage == Stage::kReplying ? counters_.one_sided : counters_.aborted);
  }
  restraint_ = 0;
  own_.clear();
  served_.clear();
  neighbours_.clear();
  put_off_.clear();
  waiting_.clear();
  usual_ = Duration();
  open_ = false;
}

void PairExchange::Open(Time now, Out& out) {
  open_ = true;
  ServeNext(now, out);
}

bool PairExchange::idle() const {
  const auto free = [](const Slot& slot) { return slot.stage == Stage::kFree; };
  return std::all_of(own_.begin(), own_.end(), free) &&
         std::all_of(served_.begin(), served_.end(), free);
}

uint32_t PairExchange::chunks() const {
  return static_cast<uint32_t>((elements_ + chunk_elements_ - 1) / chunk_elements_);
}

Extent PairExchange::RangeOf(uint32_t chunk) const {
  const uint64_t begin = uint64_t{chunk} * chunk_elements_;
  return {begin, std::min<uint64_t>(chunk_elements_, elements_ - begin)};
}

// ---- slots -------------------------------------------------------------------------------------

PairExchange::Slot* PairExchange::Find(std::vector<Slot>& slots, const PeerId& peer) {
  const auto it = std::find_if(slots.begin(), slots.end(), [&](const Slot& slot) {
    return slot.stage != Stage::kFree && slot.peer == peer;
  });
  return it == slots.end() ? nullptr : &*it;
}

Time PairExchange::Patience(Time now, const Slot& slot, Side side) const {
  const Duration usual = usual_ > Duration() ? kPause + usual_ * kUsual : kPatience;
  const Duration once = usual + std::min(step_ * kSteps, kMostOfSteps);
  const double waits = side == Side::kOwn              ? kPusherWaits
                       : slot.stage == Stage::kFilling ? kFillingWaits
                                                       : 1;
  return now + once * (waits * (1 << slot.tries));
}

void PairExchange::Begin(Time now, Slot& slot, const PeerId& peer, uint64_t number) {
  slot.stage = Stage::kFilling;
  slot.peer = peer;
  slot.number = number;
  std::fill(slot.here.begin(), slot.here.end(), false);
  slot.arrived = 0;
  slot.sent = true;
  slot.tries = 0;
  slot.restraint = 0;
  slot.began = now;
}

void PairExchange::SendFrom(Time now, Slot& slot, Side side, Out& out) {
  slot.sent = false;
  slot.deadline = Patience(now, slot, side);
  const MixTag tag = side == Side::kOwn ? kPairTag : kPairReplyTag;
  out.sends.push_back({slot.peer, tag, slot.number, chunks()});
}

void PairExchange::EndOwn(Time now, Slot& slot, Out& out) {
  slot.stage = Stage::kFree;
  Start(now, out);
}

void PairExchange::EndServed(Time now, Slot& slot, Out& out) {
  slot.stage = Stage::kFree;
  ServeNext(now, out);
}

// A slot is kept for each neighbour that is asked, so that no other's push takes it meanwhile.
void PairExchange::ServeNext(Time now, Out& out) {
  if (!open_ || draining_) return;
  for (Slot& slot : served_) {
    if (slot.stage != Stage::kFree) continue;
    if (waiting_.empty()) return;
    const PeerId peer = waiting_.front();
    waiting_.pop_front();
    const uint64_t number = std::exchange(neighbours_.at(peer).waits, 0);
    Begin(now, slot, peer, number);
    slot.deadline = Patience(now, slot, Side::kServed);
    out.says.push_back({peer, {PairWord::Kind::kGo, number}});
  }
}

// ---- own exchanges -----------------------------------------------------------------------------

void PairExchange::Push(const PeerId& peer) {
  if (draining_ || !neighbours_.contains(peer)) return;
  if (put_off_.size() == kMaxPutOff) {
    ++counters_.skipped;
    return;
  }
  put_off_.push_back(peer);
}

void PairExchange::Start(Time now, Out& out) {
  if (!open_ || draining_) return;
  for (Slot& slot : own_) {
    if (slot.stage != Stage::kFree) continue;
    const auto next = std::find_if(put_off_.begin(), put_off_.end(),
                                   [&](const PeerId& peer) { return Find(own_, peer) == nullptr; });
    if (next == put_off_.end()) return;
    Begin(now, slot, *next, ++number_);
    put_off_.erase(next);
    SendFrom(now, slot, Side::kOwn, out);
  }
}

void PairExchange::OnSent(Time now, const PeerId& to, MixTag tag, uint64_t number) {
  const Side side = tag == kPairTag ? Side::kOwn : Side::kServed;
  Slot* slot = Find(side == Side::kOwn ? own_ : served_, to);
  if (slot == nullptr || slot->number != number) return;
  slot->sent = true;
  slot->deadline = Patience(now, *slot, side);
}

std::optional<MixChunk> PairExchange::Describe(const PeerId& to, MixTag tag, uint64_t number,
                                               uint32_t chunk) const {
  const bool push = tag == kPairTag;
  const std::vector<Slot>& slots = push ? own_ : served_;
  const Stage stage = push ? Stage::kFilling : Stage::kReplying;
  const auto slot = std::find_if(slots.begin(), slots.end(), [&](const Slot& s) {
    return s.stage == stage && s.peer == to && s.number == number;
  });
  if (slot == slots.end() || chunk >= chunks()) return std::nullopt;
  const Extent range = RangeOf(chunk);
  sum_of_.assign(1, push ? model_ : slot->region);
  return MixChunk{.instance = {},
                  .sequence = number,
                  .count = 1,
                  .lag = push ? restraint_ : slot->restraint,
                  .wire = wire_,
                  .begin = range.begin,
                  .elements = static_cast<uint32_t>(range.count),
                  .sum_of = sum_of_};
}

// ---- deaths, time ------------------------------------------------------------------------------

void PairExchange::OnPeerDown(Time now, const PeerId& peer, Out& out) {
  std::erase(put_off_, peer);
  std::erase(waiting_, peer);
  if (const auto it = neighbours_.find(peer); it != neighbours_.end()) it->second.waits = 0;
  if (Slot* slot = Find(own_, peer)) {
    ++counters_.aborted;
    EndOwn(now, *slot, out);
  }
  if (Slot* slot = Find(served_, peer)) {
    ++(slot->stage == Stage::kReplying ? counters_.one_sided : counters_.aborted);
    EndServed(now, *slot, out);
  }
}

void PairExchange::OnLate(Time now, Slot& slot, Side side, Out& out) {
  slot.deadline = Patience(now, slot, side);
  if (!slot.sent) return;
  // Nothing was applied, so its end may send it again.
  if (side == Side::kServed && slot.stage == Stage::kFilling) return EndServed(now, slot, out);
  if (++slot.tries < kTries) {
    ++counters_.resent;
    slot.began = Time();
    return SendFrom(now, slot, side, out);
  }
  usual_ = Duration();  // links may have become slower than it says
  out.says.push_back({slot.peer, {PairWord::Kind::kGone, slot.number}});
  ++(side == Side::kServed ? counters_.one_sided : counters_.aborted);
  side == Side::kOwn ? EndOwn(now, slot, out) : EndServed(now, slot, out);
}

void PairExchange::OnTimer(Time now, Out& out) {
  for (Slot& slot : own_)
    if (slot.stage != Stage::kFree && now >= slot.deadline) OnLate(now, slot, Side::kOwn, out);
  for (Slot& slot : served_)
    if (slot.stage != Stage::kFree && now >= slot.deadline) OnLate(now, slot, Side::kServed, out);
}

Time PairExchange::NextDeadline() const {
  Time next = Time::Infinite();
  for (const std::vector<Slot>* slots : {&own_, &served_})
    for (const Slot& slot : *slots)
      if (slot.stage != Stage::kFree) next = std::min(next, slot.deadline);
  return next;
}

}  // namespace crowdsurf::worker
