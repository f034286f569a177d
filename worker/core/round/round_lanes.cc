// Own inputs on their way to the owners of their chunks, a window ahead of the results (round.h).
#include <algorithm>

#include "base/check.h"
#include "worker/core/round/round.h"

namespace crowdsurf::worker {

// Inputs that are out already go on counting against the window of their owner.
void Round::RebuildLanes() {
  lanes_.assign(ranks(), {});
  for (uint32_t c = 0; c < assignments_.size(); ++c) {
    const ChunkAssignment& assignment = assignments_[c];
    if (assignment.owner == self() || !assignment.holders.empty() || slots_[c].held()) continue;
    if (!Covers(self(), ChunkIndex(c))) continue;
    Lane& lane = lanes_[assignment.owner];
    const bool sent = assignment.assigned == 0 ? assignment.sent_first : assignment.sent_again;
    if (sent)
      ++lane.out;
    else
      lane.chunks.push_back(ChunkIndex(c));
  }
  // All members send in one order. A member whose window is full of an owner's first chunks waits
  // for one that comes late: that one must not begin with what a plan gave the owner since.
  for (Lane& lane : lanes_)
    std::ranges::stable_sort(
        lane.chunks, {}, [this](ChunkIndex chunk) { return assignments_[chunk.value()].assigned; });
}

// An owner can take inputs once it has opened the round: its READY or its STATUS says so.
void Round::SendInputs(int owner, RoundActions& out) {
  if (over_ || target_ || owner == self() || !Trusts(owner)) return;
  if (!(ready_ | plan_members_).Contains(owner)) return;
  Lane& lane = lanes_[static_cast<size_t>(owner)];
  while (lane.next < lane.chunks.size()) {
    const ChunkIndex chunk = lane.chunks[lane.next];
    if (lane.out >= WindowTo(owner, assignments_[chunk.value()].assigned)) break;
    const bool held = slots_[chunk.value()].held();
    if (!held && !HasOwn(chunk)) break;  // OnFilled goes on
    ++lane.next;
    if (held) continue;
    ChunkAssignment& assignment = assignments_[chunk.value()];
    bool& sent = assignment.assigned == 0 ? assignment.sent_first : assignment.sent_again;
    if (sent) continue;  // it asked for it meanwhile
    sent = true;
    ++lane.out;
    out.push_back(SendInput{PeerAt(owner), chunk, assignment.assigned});
  }
}

// Until an owner shows that it has the plan, inputs of what the plan gives it wait there, within a
// bound (OnInput).
uint32_t Round::WindowTo(int owner, Ballot assigned) const {
  if (assigned > 0 && !follow_.Contains(owner)) return fixed_->spec.window_chunks;
  return windows_[static_cast<size_t>(owner)];
}

void Round::OnWindow(const PeerId& owner, uint32_t chunks, RoundActions& out) {
  const int rank = RankOf(owner);
  CHECK_GE(rank, 0);
  windows_[static_cast<size_t>(rank)] =
      std::clamp(chunks, fixed_->spec.window_chunks, fixed_->spec.max_window_chunks);
  SendInputs(rank, out);
}

void Round::SendAllInputs(RoundActions& out) {
  for (int rank = 0; rank < static_cast<int>(ranks()); ++rank) SendInputs(rank, out);
}

void Round::OnFilled(size_t chunks, RoundActions& out) {
  const size_t before = filled_;
  filled_ = std::max(filled_, std::min(chunks, assignments_.size()));
  if (filled_ == before || over_ || target_) return;
  ++progress_;
  SendAllInputs(out);
  const auto first = pending_.lower_bound(ChunkIndex(static_cast<uint32_t>(before)));
  const std::vector<ChunkIndex> now(
      first, pending_.lower_bound(ChunkIndex(static_cast<uint32_t>(filled_))));
  for (const ChunkIndex chunk : now) TryFold(chunk, out);
  Drain(out);
}

bool Round::AwaitsResult(const PeerId& owner, ChunkIndex chunk) const {
  if (chunk.value() >= assignments_.size() || slots_[chunk.value()].held()) return false;
  const ChunkAssignment& assignment = assignments_[chunk.value()];
  const bool sent = assignment.assigned == 0 ? assignment.sent_first : assignment.sent_again;
  return sent && assignment.holders.empty() && PeerAt(assignment.owner) == owner;
}

uint32_t Round::window(const PeerId& owner) const {
  const int rank = RankOf(owner);
  CHECK_GE(rank, 0);
  return windows_[static_cast<size_t>(rank)];
}

uint32_t Round::widest() const { return *std::max_element(windows_.begin(), windows_.end()); }

}  // namespace crowdsurf::worker
