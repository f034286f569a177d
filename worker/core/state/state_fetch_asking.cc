// What a fetch asks of whom, when it asks again elsewhere, and how it ends (state_fetch.h).
#include <algorithm>

#include "base/status.h"
#include "worker/core/state/state_fetch.h"

namespace crowdsurf::worker {
namespace {

uint32_t OpaqueChunks(const OpaqueState& opaque) {
  return static_cast<uint32_t>((opaque.bytes + kStateChunkBytes - 1) / kStateChunkBytes);
}

}  // namespace

void StateFetch::AskManifest(Time now, const PeerId& peer, Donor& donor, FetchActions& out) {
  donor.manifest_asked = now;
  donor.paused_until = Time();
  out.push_back(AskDonor{peer, ManifestRequest{options_.averaging}});
}

void StateFetch::ChooseOpaqueDonor() {
  if (!options_.want_opaque || opaque_donor_ || !target_) return;
  // A donor of the same average first: its trainer's state goes with these parameters.
  for (const bool same_average : {true, false}) {
    if (!same_average && options_.exact_opaque) return;
    for (const auto& [peer, donor] : donors_) {
      if (donor.failed || donor.bad_opaque || !donor.manifest || donor.opaque.bytes == 0 ||
          donor.opaque.bytes > options_.max_opaque || (same_average && !Serves(donor))) {
        continue;
      }
      opaque_donor_ = peer;
      opaque_ = donor.opaque;
      const uint32_t n = OpaqueChunks(opaque_);
      opaque_missing_ = n;
      for (uint32_t i = 0; i < n; ++i) opaque_todo_.insert(opaque_todo_.end(), i);
      return;
    }
  }
}

// Nothing more can be expected of the opaque state: it is there, not wanted, or nobody has it.
bool StateFetch::OpaqueSettled(Time now) const {
  if (!options_.want_opaque || opaque_done_) return true;
  if (opaque_donor_ || options_.exact_opaque) return false;
  return now >= whole_at_ + options_.opaque_patience ||
         std::all_of(donors_.begin(), donors_.end(), [](const auto& d) {
           return d.second.failed || (d.second.manifest && d.second.paused_until.unset());
         });
}

// When a donor that was asked then, and has not answered, has failed.
Time StateFetch::AnswerBy(const Donor& donor, Time asked) const {
  return std::max(asked, donor.heard) + options_.answer;
}

Duration StateFetch::HedgeAfter() const {
  if (answer_times_.empty()) return options_.min_hedge;
  std::vector<Duration> sorted = answer_times_;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<long>(sorted.size() / 2),
                   sorted.end());
  return std::max(options_.min_hedge, sorted[sorted.size() / 2] * 4.0);
}

// A chunk that another donor is slow with, when there is nothing else to ask for.
std::optional<uint32_t> StateFetch::HedgeFor(const Donor& donor) const {
  for (const auto& [peer, other] : donors_) {
    if (&other == &donor) continue;
    for (const Ask& ask : other.open) {
      // A second donor at most is asked for a chunk.
      if (ask.ripe && !ask.opaque && asked_[ask.chunk] == 1 && !have_[ask.chunk]) return ask.chunk;
    }
  }
  return std::nullopt;
}

bool StateFetch::AskOne(Time now, const PeerId& peer, Donor& donor, FetchActions& out) {
  if (donor.failed || !donor.paused_until.unset() || donor.open.size() >= options_.window) {
    return false;
  }
  if (opaque_donor_ == peer && !opaque_todo_.empty()) {
    const uint32_t chunk = *opaque_todo_.begin();
    opaque_todo_.erase(opaque_todo_.begin());
    donor.open.push_back({now, true, chunk, false});
    out.push_back(AskDonor{peer, ChunkRequest{opaque_.hash, true, chunk}});
    return true;
  }
  if (!Serves(donor)) return false;
  uint32_t chunk;
  if (!todo_.empty()) {
    chunk = *todo_.begin();
    todo_.erase(todo_.begin());
  } else if (const auto hedge = HedgeFor(donor)) {
    chunk = *hedge;
    hedges_.Add();
  } else {
    return false;
  }
  ++asked_[chunk];
  donor.open.push_back({now, false, chunk, false});
  out.push_back(AskDonor{peer, ChunkRequest{target_root_, false, chunk}});
  return true;
}

void StateFetch::End(FetchActions& out) {
  // Every donor is told, so that its place is free for the next joiner.
  finished_ = true;
  const StateMessage over = FetchOver{};
  for (const auto& [peer, donor] : donors_)
    out.emplace_back(std::in_place_type<AskDonor>, AskDonor{peer, over});
}

void StateFetch::Proceed(Time now, FetchActions& out) {
  Retarget();
  ChooseOpaqueDonor();
  bool asked = true;
  while (asked) {  // one each in turn, so that all donors share the work
    asked = false;
    for (auto& [peer, donor] : donors_) asked |= AskOne(now, peer, donor, out);
  }
  const bool whole = target_ && kept_ == target_->chunks();
  // From here on runs the patience for the opaque state.
  if (whole && whole_at_.unset()) whole_at_ = now;
  if (whole && OpaqueSettled(now)) {
    End(out);
    out.push_back(FetchDone{*target_, opaque_done_, mixed_});
    return;
  }
  if (!options_.mix && moves_ > options_.max_moves) {
    End(out);
    out.push_back(FetchFailed{absl::StrCat("its donors have gone on ", moves_, " times")});
    return;
  }
  // All known donors have failed: another one may be named within alone_patience. A fetch that
  // waits only for the opaque state's hash needs none.
  const bool lacks = !whole || (options_.exact_opaque && !opaque_done_ && !opaque_donor_);
  const bool alone =
      lacks && !donors_.empty() &&
      std::all_of(donors_.begin(), donors_.end(), [](const auto& d) { return d.second.failed; });
  if (!alone) alone_since_ = Time();
  if (alone && alone_since_.unset()) alone_since_ = now;
}

void StateFetch::OnTimer(Time now, FetchActions& out) {
  if (finished_) return;
  if (now >= progress_at_ + options_.stalled) {
    End(out);
    out.push_back(FetchFailed{absl::StrCat("nothing more has come for ", options_.stalled.seconds(),
                                           " s, ", kept_, " chunks of ",
                                           target_ ? target_->chunks() : 0, " were there")});
    return;
  }
  if (!alone_since_.unset() && now >= alone_since_ + options_.alone_patience) {
    End(out);
    out.push_back(
        FetchFailed{absl::StrCat("all ", donors_.size(), " donors failed, ", kept_, " chunks of ",
                                 target_ ? target_->chunks() : 0, " were there")});
    return;
  }
  const Duration hedge = HedgeAfter();
  for (auto& [peer, donor] : donors_) {
    if (donor.failed) continue;
    const bool silent =
        (!donor.manifest_asked.unset() && now >= AnswerBy(donor, donor.manifest_asked)) ||
        std::any_of(donor.open.begin(), donor.open.end(),
                    [&](const Ask& a) { return now >= AnswerBy(donor, a.at); });
    if (silent) {
      Fail(donor);
      continue;
    }
    for (Ask& ask : donor.open) ask.ripe |= now >= ask.at + hedge;
    if (!donor.paused_until.unset() && now >= donor.paused_until) {
      donor.paused_until = Time();
      if (!donor.manifest && donor.manifest_asked.unset()) AskManifest(now, peer, donor, out);
    }
  }
  Proceed(now, out);
}

Time StateFetch::NextDeadline() const {
  if (finished_) return Time::Infinite();
  Time next = progress_at_ + options_.stalled;
  if (!alone_since_.unset()) next = std::min(next, alone_since_ + options_.alone_patience);
  if (!whole_at_.unset() && !opaque_donor_) {
    next = std::min(next, whole_at_ + options_.opaque_patience);
  }
  const Duration hedge = HedgeAfter();
  for (const auto& [peer, donor] : donors_) {
    if (donor.failed) continue;
    if (!donor.manifest_asked.unset()) next = std::min(next, AnswerBy(donor, donor.manifest_asked));
    if (!donor.paused_until.unset()) next = std::min(next, donor.paused_until);
    for (const Ask& ask : donor.open) {
      next = std::min(next, ask.ripe ? AnswerBy(donor, ask.at) : ask.at + hedge);
    }
  }
  return next;
}

}  // namespace crowdsurf::worker
