// PeerNode: what the checkers see of strategies on graphs and of `rounds: One`, and planted faults
// there.
#include <algorithm>
#include <limits>

#include "simulator/chaos/peer_node.h"
#include "worker/core/power/power_frames.h"

namespace crowdsurf::simulator {

using worker::Region;

// The trainer's last report is what counts, which is at most what it has trained by now.
void PeerNode::SeeCounting(const worker::OpenBuffers& open) {
  counts_in_ = open.to;
  if (open.from != Region::kOutbox) return SeeUsed(open.from);
  const SnapshotId snapshot = outside_.peer_checkers().NewSnapshot(index(), Totals().samples);
  outside_.peer_checkers().OnWeighed(snapshot, open.weight);
  Watched().SetCounted(At(Region::kOutbox), outside_.origins().Of(snapshot));
}

bool PeerNode::SeeMixing(const worker::Action& action) {
  if (std::holds_alternative<worker::ReserveRegions>(action)) {
    // With it a strategy begins for a view.
    if (const auto summary = Summarize(); summary.view)
      outside_.mixing_checkers().OnView(index(), summary.view->hash);
  } else if (const auto* kernel = std::get_if<worker::RunKernel>(&action)) {
    return kernel->kernel != worker::MixKernel::kMoveTowards || SeeMove(*kernel);
  } else if (const auto* power = std::get_if<worker::PowerAction>(&action)) {
    SeePower(*power);
  } else if (const auto* mixed = std::get_if<worker::DeliverMix>(&action)) {
    if (Planted(ChaosPlant::kKeepsResults)) return false;
    float& first = At(mixed->region).values[0];
    if (Planted(ChaosPlant::kBeyondAll)) first += 1e3F;
    if (Planted(ChaosPlant::kMakesNaN)) first = std::numeric_limits<float>::quiet_NaN();
    outside_.OnMixed(index(), At(mixed->region).values);
  } else if (const auto* counted = std::get_if<worker::JobCounted>(&action)) {
    worker::JobCounted told = *counted;
    if (Planted(ChaosPlant::kWrongCount)) told.job_samples += 1;
    outside_.OnCounted(index(), told, Watched().CountedIn(At(counts_in_)));
  }
  return true;
}

void PeerNode::SeeTurn(const worker::Action& action) {
  if (const auto* mix = std::get_if<worker::DeliverMix>(&action)) {
    SeeUsed(mix->region);
    if (Planted(ChaosPlant::kWrongValue)) At(mix->region).values[0] += 0.25F;
    outside_.OnGroupMean(index(), At(mix->region), *snapshot_);
  } else if (const auto* counted = std::get_if<worker::JobCounted>(&action)) {
    worker::JobCounted told = *counted;
    // More than all trainers have made.
    if (Planted(ChaosPlant::kWrongCount)) told.job_samples += 1e6;
    outside_.OnCounted(index(), told, Watched().CountedIn(At(counts_in_)));
  }
}

// Pairs: x or x-tilde moves by a difference.
bool PeerNode::SeeMove(const worker::RunKernel& kernel) {
  const double weight = kernel.scalars.front();
  if (weight < 0 && Planted(ChaosPlant::kMovesAlone)) return false;
  const int times = weight < 0 && Planted(ChaosPlant::kMovesTwice) ? 2 : 1;
  for (int i = 0; i < times; ++i) {
    if (i > 0) ActionHost::Execute(kernel);
    outside_.mixing_checkers().OnMove(index(), worker::ExtraIndex(kernel.regions[0]), weight,
                                      At(kernel.regions[1]).values);
  }
  return true;
}

void PeerNode::SeePower(const worker::PowerAction& action) {
  if (const auto* use = std::get_if<worker::UsePowerEdges>(&action)) power_ = *use;
  const auto* apply = std::get_if<worker::ApplyPower>(&action);
  if (apply == nullptr) return;
  for (const worker::PowerEnd& end : power_.ends) {
    if (std::find(apply->peers.begin(), apply->peers.end(), end.peer) == apply->peers.end())
      continue;
    std::vector<float>& region = At(end.region).values;
    const worker::Extent own = power_.frames->Own(apply->step);
    const worker::Extent theirs = power_.frames->Arriving(apply->step);
    if (Planted(ChaosPlant::kOtherFrames)) region[theirs.begin + theirs.count - 1] += 0.25F;
    const auto bytes = [&](const worker::Extent& extent) {
      return ByteView{reinterpret_cast<const uint8_t*>(region.data() + extent.begin),
                      extent.count * sizeof(float)};
    };
    const bool low = power_.self < end.peer;
    outside_.mixing_checkers().OnStep(index(), {.low = low ? power_.self : end.peer,
                                                .high = low ? end.peer : power_.self,
                                                .number = apply->step,
                                                .weight = end.weight,
                                                .low_frame = bytes(low ? own : theirs),
                                                .high_frame = bytes(low ? theirs : own)});
  }
}

}  // namespace crowdsurf::simulator
