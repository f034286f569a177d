#include "worker/core/power/power_edges.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "base/overloaded.h"
#include "worker/core/power/power_frames.h"
#include "worker/core/vector/wire_format.h"

namespace crowdsurf::worker {
namespace {

struct PowerHead {
  uint64_t fingerprint = 0;
  uint32_t reseeds = 0;
};

// A byte a value: exact as float16 and bfloat16 too.
template <class Scalar>
void WriteHead(const PowerHead& head, std::span<Scalar> out) {
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<Scalar>(head.fingerprint >> (8 * i) & 0xFF);
  for (size_t i = 0; i < 4; ++i) out[8 + i] = static_cast<Scalar>(head.reseeds >> (8 * i) & 0xFF);
}

template <class Scalar>
PowerHead ReadHead(std::span<const Scalar> in) {
  const auto byte = [&](size_t i) {  // a peer may send anything
    return static_cast<uint64_t>(std::clamp<Scalar>(in[i], 0, 255));
  };
  PowerHead head;
  for (size_t i = 0; i < 8; ++i) head.fingerprint |= byte(i) << (8 * i);
  for (size_t i = 0; i < 4; ++i) head.reseeds |= static_cast<uint32_t>(byte(8 + i) << (8 * i));
  return head;
}

// Equal at both ends of an edge, and another one for each pair of peers.
uint64_t SeedOf(const PeerId& a, const PeerId& b) {
  ByteWriter out;
  out.String("power edge");
  out.Raw(std::min(a, b).view());
  out.Raw(std::max(a, b).view());
  return ContentHash(out.bytes(), 0);
}

}  // namespace

template <class Scalar>
void PowerEdges<Scalar>::Run(const PowerAction& action, const Part& part) {
  std::visit(Overloaded{[&](const UsePowerEdges& use) { Use(use); },
                        [&](const ProjectPower& project) { Project(project, part); },
                        [&](const ApplyPower& apply) { Apply(apply, part); }},
             action);
}

template <class Scalar>
PowerEdge<Scalar> PowerEdges<Scalar>::Draw(const PeerId& peer, uint32_t reseeds) const {
  const Rng seed = Rng(SeedOf(self_, peer)).Fork("reseeds " + std::to_string(reseeds));
  return PowerEdge<Scalar>(frames_->layout(), seed);
}

template <class Scalar>
void PowerEdges<Scalar>::Use(const UsePowerEdges& use) {
  const bool same = frames_ && self_ == use.self && *frames_->layout() == *use.frames->layout();
  std::map<PeerId, Edge> before = std::exchange(edges_, {});
  self_ = use.self;
  frames_ = use.frames;
  wire_ = use.wire;
  for (const PowerEnd& end : use.ends) {
    const bool low = self_ < end.peer;
    const auto kept = before.find(end.peer);
    // The same ends and matrices: what the factors know of the difference still holds.
    if (same && kept != before.end()) {
      kept->second.end = end;
      kept->second.factors.Restart(1);
      edges_.emplace(end.peer, std::move(kept->second));
    } else {
      edges_.emplace(end.peer, Edge{end, low, 0, Draw(end.peer, 0)});
    }
  }
}

template <class Scalar>
void PowerEdges<Scalar>::Project(const ProjectPower& project, const Part& part) {
  const auto vector = part(project.from, {0, frames_->layout()->elements()});
  for (auto& [peer, edge] : edges_) {
    // An edge that is down for the rest of the view has not ended an earlier step.
    if (edge.factors.iteration() != frames_->IterationsBy(project.step - 1) + 1) continue;
    const std::span<Scalar> frame = part(edge.end.region, frames_->Own(project.step));
    const std::span<Scalar> body = frame.subspan(PowerFrames::kHead);
    if (frames_->IsDense(project.step)) {
      std::copy(vector.begin(), vector.end(), body.begin());
    } else {
      edge.factors.Project(vector, body);
    }
    WriteHead({edge.factors.Fingerprint(), edge.reseeds}, frame.first(PowerFrames::kHead));
    // Both ends go by the values that travel, so that their updates are exact opposites.
    if (wire_ != WireFormat::kFloat32) RoundAsWire<Scalar>(wire_, frame, frame);
  }
}

template <class Scalar>
void PowerEdges<Scalar>::ApplyDense(const Edge& edge, std::span<const Scalar> mine,
                                    std::span<const Scalar> theirs,
                                    std::span<Scalar> vector) const {
  const auto weight = static_cast<Scalar>(edge.end.weight);
  for (size_t i = 0; i < vector.size(); ++i) vector[i] += weight * (theirs[i] - mine[i]);
}

template <class Scalar>
void PowerEdges<Scalar>::Apply(const ApplyPower& apply, const Part& part) {
  const std::span<Scalar> vector = part(apply.to, {0, frames_->layout()->elements()});
  for (const PeerId& peer : apply.peers) {
    const auto at = edges_.find(peer);
    CHECK(at != edges_.end());
    Edge& edge = at->second;
    const std::span<const Scalar> mine = part(edge.end.region, frames_->Own(apply.step));
    const std::span<const Scalar> theirs = part(edge.end.region, frames_->Arriving(apply.step));
    const auto my_values = mine.subspan(PowerFrames::kHead);
    const auto their_values = theirs.subspan(PowerFrames::kHead);
    // Whole vectors need no factors, so their heads are not compared.
    if (frames_->IsDense(apply.step)) {
      ApplyDense(edge, my_values, their_values, vector);
      continue;
    }
    CHECK_EQ(edge.factors.iteration(), frames_->IterationsBy(apply.step));
    const PowerHead ours = ReadHead<Scalar>(mine), other = ReadHead<Scalar>(theirs);
    if (ours.fingerprint != other.fingerprint || ours.reseeds != other.reseeds) {
      // The ends have come apart: nobody applies this step, and both draw the same new factors.
      ++reseeds_;
      edge.reseeds = std::max(ours.reseeds, other.reseeds) + 1;
      edge.factors = Draw(peer, edge.reseeds);
      edge.factors.Restart(frames_->IterationsBy(apply.step) + 1);
    } else if (edge.low) {
      edge.factors.Apply(my_values, their_values, edge.end.weight, vector);
    } else {
      // Both apply the same difference: the lower end by +W, the higher by -W.
      edge.factors.Apply(their_values, my_values, -edge.end.weight, vector);
    }
  }
}

template class PowerEdges<float>;
template class PowerEdges<double>;

}  // namespace crowdsurf::worker
