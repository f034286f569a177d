#include "simulator/round/round_checkers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/digest.h"
#include "worker/core/round/round_codec.h"
#include "worker/core/vector/wire_format.h"
#include "worker/core/view/view.h"

namespace crowdsurf::simulator {

using worker::Ballot;
using worker::ChunkIndex;
using worker::FoldChunk;
using worker::InstanceId;
using worker::RoundOver;
using worker::WireFormat;

Bytes RecomputeFold(const ResultForm& form, const worker::ChunkSpan& span,
                    const std::map<int, Bytes>& inputs, const std::vector<double>& weights) {
  const auto [wire, dither] = form;
  const size_t count = span.count;
  // Without the scaling by a power of two: that is exact, so the bits must be the same.
  double sum = 0;
  for (const auto& [rank, bytes] : inputs) sum += weights[static_cast<size_t>(rank)];
  // All weights are 0: then all count alike.
  const bool plain = sum == 0;
  if (plain) sum = static_cast<double>(inputs.size());
  const size_t size = worker::WireBytes<float>(wire, count);
  std::vector<float> total(count, 0.0F);
  std::vector<float> values(count);
  for (const auto& [rank, bytes] : inputs) {
    if (bytes.size() != size) return {};
    worker::DecodeWire(wire, bytes, std::span<float>(values));
    const auto weight = static_cast<float>(plain ? 1.0 : weights[static_cast<size_t>(rank)]);
    for (size_t i = 0; i < count; ++i) {
      const float product = weight * values[i];
      total[i] = total[i] + product;
    }
  }
  const auto factor = static_cast<float>(1.0 / sum);
  for (float& value : total) value = value * factor;
  Bytes result(size);
  if (wire == WireFormat::kInt8)
    worker::EncodeMean({dither, span.begin}, std::span<const float>(total), result);
  else
    worker::EncodeWire(wire, std::span<const float>(total), result);
  return result;
}

namespace {

// One element of a fold under masks: `parts` are the values of who covers it, as they travelled,
// ranks ascending, with their weights.
float MeanOf(const std::vector<std::pair<double, float>>& parts, float old) {
  if (parts.empty()) return old;
  if (parts.size() == 1) return parts.front().second;
  double sum = 0;
  for (const auto& [weight, value] : parts) sum += weight;
  const bool plain = sum == 0;
  float total = 0;
  for (const auto& [weight, value] : parts) {
    const float product = static_cast<float>(plain ? 1.0 : weight) * value;
    total = total + product;
  }
  return total * static_cast<float>(1.0 / (plain ? static_cast<double>(parts.size()) : sum));
}

float AsTravelled(WireFormat wire, float value) {
  Bytes bytes(worker::WireWidth<float>(wire));
  worker::EncodeWire(wire, std::span<const float>(&value, 1), bytes);
  worker::DecodeWire(wire, bytes, std::span<float>(&value, 1));
  return value;
}

}  // namespace

// Without masks by the bytes alone; with them element by element, from what the members said at the
// start, not from what their bytes say of themselves.
bool RoundCheckers::IsMean(int node, const Seen& seen, const FoldReport& report) const {
  const auto& [fold, used, span, slot, subnet, result, form] = report;
  if (subnet && used.size() == 1) return used.begin()->second == result;
  const auto all_of_it = [&](const auto& masked) {
    const std::vector<bool>& covered = masked.second.covered;
    const auto input = seen.inputs.find(masked.first);  // not there: it never opened the round
    return input != seen.inputs.end() && input->second.node == node &&
           std::find(covered.begin(), covered.end(), false) == covered.end();
  };
  // A member without a mask that is left alone folds as ever: times its weight, and over it.
  const bool alone =
      used.size() == 1 && std::any_of(seen.masked.begin(), seen.masked.end(), all_of_it);
  if (seen.masked.empty() || alone) return RecomputeFold(form, span, used, fold.weights) == result;
  float old = 0;
  std::vector<std::pair<double, float>> parts;
  for (size_t element = 0; element < span.count; ++element) {
    parts.clear();
    for (const auto& [rank, bytes] : used) {
      const double weight = fold.weights[static_cast<size_t>(rank)];
      const auto masked = seen.masked.find(rank);
      if (masked == seen.masked.end()) {  // a hole's
        std::vector<float> values(span.count);
        worker::DecodeWire(seen.wire, bytes, std::span<float>(values));
        parts.emplace_back(weight, values[element]);
        continue;
      }
      // What a liar has put in is not known.
      if (hostile_.contains(seen.inputs.at(rank).node)) return true;
      const MaskedInput& input = masked->second;
      const float own = input.own[span.begin + element];
      if (seen.inputs.at(rank).node == node) old = own;
      if (input.covered[span.begin + element])
        parts.emplace_back(weight, AsTravelled(seen.wire, own));
    }
    // The value of one member alone has travelled already; a mean is rounded after it is made.
    const bool kept = parts.empty();
    const float mean = MeanOf(parts, old);
    if (slot[element] != (kept || parts.size() == 1 ? mean : AsTravelled(seen.wire, mean)))
      return false;
  }
  return true;
}

void RoundCheckers::Add(std::string_view statement, const InstanceId& instance, int node,
                        const std::string& what) {
  violations_.Add(statement,
                  absl::StrCat("instance ", instance.brief(), ", node ", node, ": ", what));
}

void RoundCheckers::OnOpen(int node, const InstanceId& instance, OpenReport report) {
  Seen& seen = seen_[instance];
  seen.wire = report.wire;
  const auto at = seen.inputs.find(report.rank);
  if (at != seen.inputs.end() && at->second.node != node)
    return Add("S7", instance, node,
               absl::StrCat("rank ", report.rank, " is also node ", at->second.node));
  // A round that has sent nothing may be opened anew, by then with another weight.
  seen.inputs.insert_or_assign(report.rank, Input{node, report.weight, std::move(report.inputs)});
}

void RoundCheckers::OnSpoke(int node, const InstanceId& instance, int rank, ChunkIndex chunk,
                            const Parcel& value) {
  if (hostile_.contains(node)) return;
  // What any stand-in says for the rank: an owner may use any of it.
  seen_[instance].spoken[{rank, chunk}].insert(value.wire);
}

void RoundCheckers::OnFold(int node, const InstanceId& instance, const FoldReport& report) {
  const FoldChunk& fold = report.fold;
  ++folds_;
  Seen& seen = seen_[instance];
  if (hostile_.contains(node)) {
    // A liar's fold is not judged, but honest members may come to hold it.
    seen.folds[{fold.chunk, fold.assigned}].push_back(
        {node, fold.mask, report.span, report.subnet, report.result, report.form.wire});
    return;
  }
  for (const auto& [rank, bytes] : report.used) {
    const auto input = seen.inputs.find(rank);
    const auto spoken = seen.spoken.find({rank, fold.chunk});
    // A contribution is the member's own chunk, or what a stand-in has said in its place.
    const bool own =
        input != seen.inputs.end() && (hostile_.contains(input->second.node) ||
                                       input->second.chunks[fold.chunk.value()].wire == bytes);
    const bool stand_in = spoken != seen.spoken.end() && spoken->second.contains(bytes);
    if (!own && !stand_in)
      Add("S6", instance, node, absl::StrCat("foreign values in the sum for rank ", rank));
    // Vector and weight travel together: whose bytes they are, his is the weight.
    const double weight = fold.weights[static_cast<size_t>(rank)];
    const bool own_weight =
        own && (input->second.weight == weight || hostile_.contains(input->second.node));
    if ((own || stand_in) && !own_weight && !(stand_in && seen.voices[rank].contains(weight)))
      Add("S5", instance, node,
          absl::StrCat("folded rank ", rank, " with weight ", weight, ", which is not that of ",
                       own ? "the member" : "a speaker", " whose values it folded"));
  }
  if (!IsMean(node, seen, report))
    Add("S5", instance, node,
        absl::StrCat("chunk ", fold.chunk.value(), " is not the mean of its mask"));
  std::vector<Fold>& folds = seen.folds[{fold.chunk, fold.assigned}];
  for (const Fold& other : folds) {
    // A member whose base is behind has other chunks than the rest, folds what is its own, and
    // leaves. That nobody uses such a fold is S1's.
    if ((other.subnet || report.subnet) && other.span != report.span) continue;
    // So does one that has no base, and sends whole values where the others send changes.
    if (other.wire != report.form.wire) continue;
    if (other.node != node || other.mask != fold.mask)
      Add("S5", instance, node,
          absl::StrCat("chunk ", fold.chunk.value(), " assigned ", fold.assigned,
                       " has two masks"));
  }
  folds.push_back({node, fold.mask, report.span, report.subnet, report.result, report.form.wire});
}

void RoundCheckers::OnCountedTwice(int node, const InstanceId& instance, ChunkIndex chunk) {
  Add("twice", instance, node,
      absl::StrCat("chunk ", chunk.value(), " has a snapshot in it twice"));
}

void RoundCheckers::Decide(const InstanceId& instance, Seen& seen, const Digest& root) {
  seen.decided.insert(root);
  // Said once, when the second one comes.
  if (seen.decided.size() == 2) Add("S3", instance, -1, "two values decided");
}

void RoundCheckers::OnFrame(int node, const worker::Frame& frame, const worker::RoundSpec& spec) {
  const auto* have = std::get_if<worker::Have>(&frame.body);
  if (have == nullptr || have->ballot != 0 || hostile_.contains(node)) return;
  Seen& seen = seen_[frame.instance];
  seen.fast_haves[node] = have->root;
  // Equal HAVE(0) of all members: decided on the fast path.
  size_t members = 0;
  for (const worker::RoundCell& cell : spec.cells) members += cell.member.has_value() ? 1 : 0;
  if (seen.fast_haves.size() < members) return;
  for (const auto& [other, root] : seen.fast_haves)
    if (root != have->root) return;
  Decide(frame.instance, seen, have->root);
}

void RoundCheckers::OnWitnessFrame(int node, const PeerId& id, const worker::Frame& frame,
                                   const std::vector<PeerId>& witnesses) {
  Seen& seen = seen_[frame.instance];
  if (const auto* open = std::get_if<worker::BallotOpen>(&frame.body);
      // Members that leave for a branch may apply another value there (OnUsed).
      open != nullptr && open->branch)
    seen.branched = true;
  if (const auto* speak = std::get_if<worker::Speak>(&frame.body))
    seen.voices[speak->rank].insert(speak->stake.weight);
  if (const auto* accept = std::get_if<worker::Accept>(&frame.body)) {
    if (const auto held = worker::DecodeHeldValue(accept->value))
      // Witnesses name the hash of what they accept; roots compare with the fast value's.
      seen.roots[Sha256(accept->value)] = worker::RootOf(held->value);
    return;
  }
  const auto* accepted = std::get_if<worker::Accepted>(&frame.body);
  if (accepted == nullptr || hostile_.contains(node)) return;
  // Counted as they are sent, whether or not anybody hears of them.
  std::set<PeerId>& by = seen.accepted[{accepted->ballot, accepted->value}];
  by.insert(id);
  const auto root = seen.roots.find(accepted->value);
  if (root != seen.roots.end() && worker::IsQuorum(witnesses, by))
    Decide(frame.instance, seen, root->second);
}

Digest RoundCheckers::LastHave(int node, const InstanceId& instance) const {
  const auto seen = seen_.find(instance);
  if (seen == seen_.end()) return {};
  const auto have = seen->second.fast_haves.find(node);
  return have == seen->second.fast_haves.end() ? Digest() : have->second;
}

void RoundCheckers::CheckValue(int node, const InstanceId& instance, const RoundOver& over,
                               const std::vector<Bytes>& slots) {
  Seen& seen = seen_[instance];
  double weight = 0;
  // As the members said when they opened the round.
  for (const auto& [rank, input] : seen.inputs)
    if (over.contributors.Contains(rank)) weight += input.weight;
  for (ChunkIndex chunk; chunk.value() < slots.size(); ++chunk) {
    if (slots[chunk.value()].empty()) {
      Add("S2", instance, node, absl::StrCat("applied without chunk ", chunk.value()));
      continue;
    }
    // A chunk may leave contributors of the round out, but holds nobody else.
    bool known = false;
    for (auto fold = seen.folds.lower_bound({chunk, Ballot{0}});
         fold != seen.folds.end() && fold->first.first == chunk; ++fold)
      for (const Fold& one : fold->second)
        known = known ||
                (one.result == slots[chunk.value()] && over.contributors.ContainsAll(one.mask));
    if (!known)
      Add("S2", instance, node, absl::StrCat("chunk ", chunk.value(), " is nobody's fold"));
  }
  // The sum is known where no contributor is a hole or a liar.
  const bool all_known = [&] {
    for (int rank = 0; rank < 64; ++rank)
      if (over.contributors.Contains(rank) &&
          (!seen.inputs.contains(rank) || hostile_.contains(seen.inputs.at(rank).node)))
        return false;
    return true;
  }();
  if (all_known && weight != over.stake.weight)
    Add("S5", instance, node,
        absl::StrCat("weight ", over.stake.weight, " of contributors ", weight));
}

void RoundCheckers::OnApplied(int node, const InstanceId& instance, const ApplyReport& report) {
  const auto& [over, branch, slots, held_by_members] = report;
  ++applied_count_;
  CheckValue(node, instance, over, slots);
  Seen& seen = seen_[instance];
  // The first that applies in a branch says what all others there must apply.
  const auto [first, fresh] =
      seen.applied.try_emplace(branch, Applied{over.root, slots, over.stake.weight});
  if (first->second.root != over.root || first->second.slots != slots ||
      first->second.weight != over.stake.weight)
    Add("S1", instance, node, "another result than the first");
  if (branch == 0) Decide(instance, seen, over.root);
  for (const auto& [member, held] : held_by_members)
    if (held != slots)
      Add("S4", instance, node, absl::StrCat("live node ", member, " does not hold the decision"));
}

void RoundCheckers::OnUsed(int node, const InstanceId& instance, const std::vector<Bytes>& slots) {
  ++applied_count_;
  Seen& seen = seen_[instance];
  for (ChunkIndex chunk; chunk.value() < slots.size(); ++chunk) {
    bool known = false;
    for (auto fold = seen.folds.lower_bound({chunk, Ballot{0}});
         fold != seen.folds.end() && fold->first.first == chunk; ++fold)
      for (const Fold& one : fold->second) known = known || one.result == slots[chunk.value()];
    if (!known)
      Add("S2", instance, node, absl::StrCat("chunk ", chunk.value(), " is nobody's fold"));
  }
  seen.used.insert(slots);
  // Of which branch a use is cannot be seen: two are wrong where nobody opened one.
  if (seen.used.size() > 1 && !seen.branched)
    Add("S1", instance, node, "another result than the first");
}

}  // namespace crowdsurf::simulator
