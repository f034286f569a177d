// Pair exchange: what arrives from neighbours.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/core/strategy/pair_exchange.h"

namespace crowdsurf::worker {
namespace {

// A neighbour that has said that it has no room is given so much longer.
constexpr Duration kLongWait = Seconds(5);
// Durations follow within some eight exchanges.
constexpr double kUsualGain = 0.125;
// How often a neighbour that asks again is heard, in one exchange.
constexpr int kMostAsked = 4;

// A peer may say anything.
int64_t RestraintIn(const MixArrived& chunk) {
  return std::clamp<int64_t>(chunk.lag, 0, PairExchange::kMostRestraint);
}

}  // namespace

// ---- chunks ------------------------------------------------------------------------------------

PairExchange::Slot* PairExchange::PushTaker(const Neighbour& from, const MixArrived& chunk) {
  if (!open_ || draining_ || chunk.sequence <= from.served) return nullptr;
  Slot* slot = Find(served_, chunk.from);
  if (slot == nullptr) {
    const auto free = std::find_if(served_.begin(), served_.end(),
                                   [](const Slot& s) { return s.stage == Stage::kFree; });
    return free == served_.end() ? nullptr : &*free;
  }
  if (chunk.sequence < slot->number || slot->stage == Stage::kWhole) return nullptr;
  const bool again = chunk.sequence == slot->number && slot->here[chunk.chunk];
  return again ? nullptr : slot;
}

PairExchange::Slot* PairExchange::TakerOf(const MixArrived& chunk) {
  const auto from = neighbours_.find(chunk.from);
  if (from == neighbours_.end() || chunk.count != 1 || chunk.chunk >= chunks()) return nullptr;
  if (chunk.tag == kPairTag) return PushTaker(from->second, chunk);
  Slot* slot = chunk.tag == kPairReplyTag ? Find(own_, chunk.from) : nullptr;
  const bool takes = slot != nullptr && chunk.sequence == slot->number && !slot->here[chunk.chunk];
  return takes ? slot : nullptr;
}

std::optional<MixPlace> PairExchange::Place(const MixArrived& chunk) const {
  const Slot* slot = const_cast<PairExchange*>(this)->TakerOf(chunk);  // which changes nothing
  if (slot == nullptr) return std::nullopt;
  const Extent range = RangeOf(chunk.chunk);
  return MixPlace{.region = slot->region,
                  .begin = range.begin,
                  .count = static_cast<uint32_t>(range.count),
                  .wire = wire_};
}

void PairExchange::OnChunk(Time now, const MixArrived& chunk, Out& out) {
  Slot* slot = TakerOf(chunk);
  if (slot != nullptr && !chunk.stored) {
    // Left out as if it were lost: what is asked for again may be sound by then.
    ++counters_.not_finite;
    return;
  }
  const bool known = neighbours_.contains(chunk.from) && chunk.count == 1 &&
                     chunk.chunk < chunks() && chunk.tag <= kPairReplyTag;
  if (!known) {
    ++counters_.strange;
    return;
  }
  chunk.tag == kPairTag ? OnPush(now, slot, chunk, out) : OnReply(now, slot, chunk, out);
}

bool PairExchange::Fill(Time now, Slot& slot, Side side) {
  slot.deadline = Patience(now, slot, side);
  return ++slot.arrived == chunks();
}

void PairExchange::OnPush(Time now, Slot* slot, const MixArrived& chunk, Out& out) {
  Neighbour& from = neighbours_.at(chunk.from);
  if (slot == nullptr) {
    const bool over = draining_ || (chunk.sequence <= from.served && !Find(served_, chunk.from));
    const bool waits = !over && !Find(served_, chunk.from);
    if (waits) {
      if (from.waits == 0) waiting_.push_back(chunk.from);
      if (from.waits < chunk.sequence)
        out.says.push_back({chunk.from, {PairWord::Kind::kWait, chunk.sequence}});
      from.waits = std::max(from.waits, chunk.sequence);
      return;
    }
    ++counters_.repeated;
    // Said once a message. Its end may have given up nothing yet: there the word counts for
    // nothing.
    if (over && chunk.chunk == 0)
      out.says.push_back({chunk.from, {PairWord::Kind::kGone, chunk.sequence}});
    return;
  }
  // A newer one of the same neighbour: it has our reply to the older, or has given that up.
  if (slot->stage == Stage::kFree || slot->number != chunk.sequence) {
    Begin(now, *slot, chunk.from, chunk.sequence);
    // Chunks before this one found no slot.
    if (std::exchange(from.waits, 0) != 0) {
      std::erase(waiting_, chunk.from);
      out.says.push_back({chunk.from, {PairWord::Kind::kGo, chunk.sequence}});
    }
  }
  slot->here[chunk.chunk] = true;
  slot->restraint = RestraintIn(chunk);
  if (!Fill(now, *slot, Side::kServed)) return;
  slot->stage = Stage::kWhole;
  slot->restraint = std::max(slot->restraint, restraint_);
  slot->deadline = Time::Infinite();
  from.served = chunk.sequence;
  out.whole = true;
}

std::optional<Region> PairExchange::TakeWhole() {
  const auto slot = std::find_if(served_.begin(), served_.end(),
                                 [](const Slot& s) { return s.stage == Stage::kWhole; });
  return slot == served_.end() ? std::nullopt : std::optional(slot->region);
}

int64_t PairExchange::RestraintOf(Region region) const {
  const auto slot = std::find_if(served_.begin(), served_.end(),
                                 [&](const Slot& s) { return s.region == region; });
  return slot == served_.end() ? 0 : slot->restraint;
}

void PairExchange::Reply(Time now, Region region, Out& out) {
  const auto slot = std::find_if(served_.begin(), served_.end(),
                                 [&](const Slot& s) { return s.region == region; });
  CHECK(slot != served_.end() && slot->stage == Stage::kWhole);
  ++counters_.committed;
  slot->stage = Stage::kReplying;
  SendFrom(now, *slot, Side::kServed, out);
}

void PairExchange::OnReply(Time now, Slot* slot, const MixArrived& chunk, Out& out) {
  Neighbour& from = neighbours_.at(chunk.from);
  if (slot == nullptr) {
    ++counters_.repeated;
    const Slot* own = Find(own_, chunk.from);
    const bool under_way = own != nullptr && own->number == chunk.sequence;
    // Its end sends on until it hears of the end here.
    if (!under_way && chunk.chunk + 1 == chunks()) SayOver(chunk.from, chunk.sequence, out);
    return;
  }
  slot->here[chunk.chunk] = true;
  if (!Fill(now, *slot, Side::kOwn)) return;
  ++counters_.committed;
  from.committed = slot->number;
  Replied replied{.region = slot->region, .took = {}, .restraint = RestraintIn(chunk)};
  if (!slot->began.unset()) {
    replied.took = now - slot->began;
    usual_ = usual_ > Duration() ? usual_ + (replied.took - usual_) * kUsualGain : replied.took;
  }
  out.replied = replied;
  out.says.push_back({slot->peer, {PairWord::Kind::kDone, slot->number}});
  EndOwn(now, *slot, out);
}

// An exchange begun here is over: whether it moved the own model.
void PairExchange::SayOver(const PeerId& peer, uint64_t number, Out& out) const {
  const auto it = neighbours_.find(peer);
  if (it == neighbours_.end()) return;
  const bool done = number == it->second.committed;
  out.says.push_back({peer, {done ? PairWord::Kind::kDone : PairWord::Kind::kGone, number}});
}

// ---- words -------------------------------------------------------------------------------------

void PairExchange::OnWord(Time now, const PeerId& from, const PairWord& word, Out& out) {
  const auto fits = [&](const Slot* slot) {
    return slot != nullptr && slot->number == word.number;
  };
  Slot* own = Find(own_, from);
  Slot* served = Find(served_, from);
  switch (word.kind) {
    case PairWord::Kind::kWait:
      // Long, but not for ever: the word that ends it may be lost.
      if (fits(own)) own->deadline = Patience(now + kLongWait, *own, Side::kOwn);
      return;
    case PairWord::Kind::kGo:
      if (!fits(own)) return SayOver(from, word.number, out);
      // The first is no loss; more count as such, or a neighbour could have us send for ever.
      if (own->began.unset() && ++own->tries >= kMostAsked) return;
      own->began = Time();
      return SendFrom(now, *own, Side::kOwn, out);
    case PairWord::Kind::kDone:
      if (fits(served) && served->stage == Stage::kReplying) EndServed(now, *served, out);
      return;
    case PairWord::Kind::kGone:
      if (const auto it = neighbours_.find(from);
          it != neighbours_.end() && it->second.waits == word.number) {
        it->second.waits = 0;
        std::erase(waiting_, from);
      }
      if (fits(own)) {
        ++counters_.aborted;
        EndOwn(now, *own, out);
      }
      if (fits(served)) {
        ++(served->stage == Stage::kReplying ? counters_.one_sided : counters_.aborted);
        EndServed(now, *served, out);
      }
      return;
  }
}

}  // namespace crowdsurf::worker
