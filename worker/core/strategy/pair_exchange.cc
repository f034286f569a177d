#include "worker/core/strategy/pair_exchange.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

// An answer takes a round trip; a snapshot waits for a step boundary of its trainer, and a chunk
// of 64 KiB passes a megabit link in half a second. Halved, slow links abort; doubled, a dead
// partner costs a gossip twice the time.
constexpr Duration kAnswerPatience = Seconds(2);
constexpr double kSteps = 2;  // of the slower trainer: a boundary may have just passed

}  // namespace

void PairExchange::Reset(uint64_t elements, uint32_t chunk_elements, WireFormat wire,
                         Region receive) {
  CHECK_GT(chunk_elements, 0u);
  elements_ = elements;
  chunk_elements_ = chunk_elements;
  wire_ = wire;
  receive_ = receive;
  stage_ = Stage::kIdle;
  // number_ goes on: words of an exchange before this view fit none that follows.
  here_.assign(chunks(), false);
  sum_of_.reserve(1);
}

uint32_t PairExchange::chunks() const {
  return static_cast<uint32_t>((elements_ + chunk_elements_ - 1) / chunk_elements_);
}

std::optional<PeerId> PairExchange::partner() const {
  return stage_ == Stage::kAgreed ? std::optional(peer_) : std::nullopt;
}

void PairExchange::Progressed(Time now) {
  const Duration step = std::max(step_, partner_step_);
  deadline_ = now + kAnswerPatience + step * kSteps;
}

void PairExchange::Propose(Time now, const PeerId& peer, Out& out) {
  CHECK(idle());
  stage_ = Stage::kProposed;
  peer_ = peer;
  exchange_ = ++number_;
  // Not known before the partner accepts.
  partner_step_ = Duration();
  Progressed(now);
  ++counters_.proposed;
  out.says.push_back({peer,
                      {PairWord::Kind::kPropose, exchange_,
                       static_cast<uint64_t>(std::max<int64_t>(0, step_.nanoseconds()))}});
}

void PairExchange::Agree(Time now, const PeerId& peer, uint64_t number, uint64_t step_nanoseconds,
                         Out& out) {
  stage_ = Stage::kAgreed;
  peer_ = peer;
  exchange_ = number;
  // A partner cannot make us wait for ever: an hour bounds what it says of its step.
  partner_step_ =
      std::min(Nanoseconds(static_cast<int64_t>(std::min<uint64_t>(step_nanoseconds, INT64_MAX))),
               Seconds(3600));
  mine_.reset();
  sent_ = false;
  arrived_ = 0;
  std::fill(here_.begin(), here_.end(), false);
  Progressed(now);
  out.agreed = Agreed{peer};
}

void PairExchange::OnWord(Time now, const PeerId& from, const PairWord& word, Readiness self,
                          Out& out) {
  const bool ready = self == Readiness::kReady;
  const auto step = static_cast<uint64_t>(std::max<int64_t>(0, step_.nanoseconds()));
  switch (word.kind) {
    case PairWord::Kind::kPropose: {
      if (stage_ == Stage::kAgreed && from == peer_ && word.number == exchange_) return;  // again
      // Both proposed to each other: the lesser id's proposal stands at both ends.
      const bool crossed = stage_ == Stage::kProposed && from == peer_;
      if (crossed && self_ < from) return;
      if (!ready || (stage_ != Stage::kIdle && !crossed)) {
        ++counters_.refused;
        out.says.push_back({from, {PairWord::Kind::kBusy, word.number, step}});
        return;
      }
      Agree(now, from, word.number, word.step_nanoseconds, out);
      out.says.push_back({from, {PairWord::Kind::kAccept, word.number, step}});
      return;
    }
    case PairWord::Kind::kAccept:
      if (stage_ == Stage::kProposed && from == peer_ && word.number == exchange_) {
        if (ready) return Agree(now, from, word.number, word.step_nanoseconds, out);
        GiveUp(out);  // it has stopped exchanging since it proposed
      } else if (stage_ == Stage::kAgreed && from == peer_ && word.number == exchange_) {
        return;  // said twice
      }
      // Too late here: the other end must not wait for a snapshot that never comes.
      out.says.push_back({from, {PairWord::Kind::kCancel, word.number, step}});
      return;
    case PairWord::Kind::kBusy:
    case PairWord::Kind::kCancel:
      if (stage_ == Stage::kIdle || from != peer_ || word.number != exchange_) return;
      if (word.kind == PairWord::Kind::kBusy) ++counters_.busy;
      return GiveUp(out);
  }
}

void PairExchange::OnSnapshot(Time now, Region mine, Out& out) {
  CHECK(stage_ == Stage::kAgreed);
  mine_ = mine;
  Progressed(now);
  out.send = SendSnapshot{peer_, exchange_, chunks()};
}

void PairExchange::OnSent(Time now, const PeerId& to, uint64_t sequence, Out& out) {
  if (stage_ != Stage::kAgreed || to != peer_ || sequence != exchange_ || !mine_) return;
  sent_ = true;
  Progressed(now);
  MaybeCommit(out);
}

std::optional<MixPlace> PairExchange::Place(const MixArrived& chunk) const {
  if (stage_ == Stage::kIdle || chunk.from != peer_ || chunk.sequence != exchange_ ||
      chunk.chunk >= chunks() || chunk.count != 1) {
    return std::nullopt;
  }
  if (stage_ == Stage::kAgreed && here_[chunk.chunk]) return std::nullopt;
  const uint64_t begin = uint64_t{chunk.chunk} * chunk_elements_;
  return MixPlace{
      .region = receive_,
      .begin = begin,
      .count = static_cast<uint32_t>(std::min<uint64_t>(chunk_elements_, elements_ - begin)),
      .wire = wire_};
}

void PairExchange::OnChunk(Time now, const MixArrived& chunk, Out& out) {
  if (!Place(chunk)) {
    const bool again = stage_ == Stage::kAgreed && chunk.from == peer_ &&
                       chunk.sequence == exchange_ && chunk.chunk < chunks();
    ++(again ? counters_.repeated : counters_.strange);
    return;
  }
  if (!chunk.stored) {  // a partner with a NaN is left alone
    ++counters_.not_finite;
    return Abort(out);
  }
  // Bulk data has connections of its own and may overtake the ACCEPT that it follows from.
  if (stage_ == Stage::kProposed) Agree(now, peer_, exchange_, 0, out);
  here_[chunk.chunk] = true;
  ++arrived_;
  Progressed(now);
  MaybeCommit(out);
}

void PairExchange::MaybeCommit(Out& out) {
  if (mine_ && sent_ && arrived_ == chunks()) Commit(out);
}

std::optional<MixChunk> PairExchange::Describe(const PeerId& to, uint32_t chunk) const {
  if (stage_ != Stage::kAgreed || to != peer_ || !mine_ || chunk >= chunks()) return std::nullopt;
  const uint64_t begin = uint64_t{chunk} * chunk_elements_;
  sum_of_.assign(1, *mine_);
  return MixChunk{
      .instance = {},
      .sequence = exchange_,
      .count = 1,
      .wire = wire_,
      .begin = begin,
      .elements = static_cast<uint32_t>(std::min<uint64_t>(chunk_elements_, elements_ - begin)),
      .sum_of = sum_of_};
}

void PairExchange::Commit(Out& out) {
  ++counters_.committed;
  stage_ = Stage::kIdle;
  out.done = Done{peer_, true};
}

void PairExchange::GiveUp(Out& out) {
  ++counters_.aborted;
  stage_ = Stage::kIdle;
  out.done = Done{peer_, false};
}

void PairExchange::Abort(Out& out) {
  if (idle()) return;
  out.says.push_back({peer_, {PairWord::Kind::kCancel, exchange_, 0}});
  GiveUp(out);
}

void PairExchange::OnPeerDown(const PeerId& peer, Out& out) {
  if (!idle() && peer == peer_) GiveUp(out);
}

void PairExchange::OnTimer(Time now, Out& out) {
  if (!idle() && now >= deadline_) Abort(out);
}

}  // namespace crowdsurf::worker
