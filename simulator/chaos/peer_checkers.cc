#include "simulator/chaos/peer_checkers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>

#include "base/digest.h"
#include "worker/core/round/round_codec.h"

namespace crowdsurf::simulator {

using worker::Deliver;
using worker::ViewHash;
using worker::WireFormat;

namespace {

// Uncounted snapshots of a node that are looked at for a set of them.
constexpr size_t kMaxOpen = 16;

// Largest relative error of one trip over the wire formats; a delivery has at most a few rounds.
double Tolerance(WireFormat wire) {
  if (wire == WireFormat::kFloat16) return 1.0 / 256;
  if (wire == WireFormat::kBFloat16) return 1.0 / 32;
  // A step of a change at each encoding, and half of one for the rest; a change is up to twice the
  // largest value.
  if (wire == WireFormat::kInt8) return 1.0 / 8;
  return 4e-6;
}

}  // namespace

void PeerCheckers::Add(std::string_view statement, int node, const std::string& what) {
  violations_.Add(statement, absl::StrCat("node ", node, ": ", what));
}

SnapshotId PeerCheckers::NewSnapshot(int node, double samples_total) {
  const auto id = static_cast<SnapshotId>(snapshots_.size());
  // `fresh`: the samples since the node's last snapshot, which this one can add to the count.
  Snapshot snapshot{node, samples_total, samples_total, std::nullopt, 0, {}};
  if (const auto last = last_of_.find(node); last != last_of_.end()) {
    snapshot.previous = last->second;
    snapshot.fresh -= snapshots_[last->second].samples_total;
  }
  last_of_[node] = id;
  snapshots_.push_back(std::move(snapshot));
  return id;
}

void PeerCheckers::OnPublished(SnapshotId snapshot, const std::vector<float>& values) {
  snapshots_[snapshot].values = values;
}

void PeerCheckers::OnWeighed(SnapshotId snapshot, double weight) {
  Snapshot& weighed = snapshots_[snapshot];
  weighed.weight = weight;
  // An adoption has ended what was trained before it: only the rest may be counted, now or later.
  if (weight > 0) weighed.fresh = std::min(weighed.fresh, weight);
}

void PeerCheckers::OnMessage(int node, const worker::Message& message, const std::string& job) {
  if (const auto* news = std::get_if<worker::message::ViewNews>(&message)) {
    if (const auto view = worker::DecodeView(news->view)) OnView(*view, HashOf(*view, job));
    return;
  }
  const auto* frame = std::get_if<worker::message::RoundFrame>(&message);
  if (frame == nullptr) return;
  const auto instance = worker::PeekInstance(frame->frame);
  if (!instance) return;
  const auto [at, fresh] = views_of_.try_emplace(*instance, frame->view);
  if (!fresh && at->second != frame->view)
    Add("S7", node, absl::StrCat("instance ", instance->brief(), " in two views"));
}

void PeerCheckers::OnView(const worker::View& view, const ViewHash& hash) {
  if (view.branch) {
    branches_.insert(hash);
    return;
  }
  if (view.parent.none()) return;
  std::set<ViewHash>& successors = successors_[view.parent];
  if (successors.insert(hash).second && successors.size() > 1)
    Add("view", -1, absl::StrCat("view ", view.parent.brief(), " has two successors"));
}

void PeerCheckers::OnDeliver(int node, const Deliver& deliver, const RegionBuffer& region) {
  ++delivered_;
  CheckHashes(node, deliver, region);
  std::set<SnapshotId> inside;
  std::set<OriginId> sets(region.origins.begin(), region.origins.end());
  for (const OriginId set : sets)
    for (const SnapshotId snapshot : origins_.In(set)) inside.insert(snapshot);
  // Else chunks have different contributors, and there is no single mean.
  if (sets.size() == 1) CheckMean(node, region);
  if (counts_ == Counts::kApart) return;
  if (sets.size() == 1) CheckWeight(node, deliver, inside);
  CheckCount(node, deliver,
             counts_ == Counts::kLeases ? origins_.Throughout(region.origins) : inside);
}

void PeerCheckers::OnGroupMean(int node, const RegionBuffer& region) {
  const std::set<OriginId> sets(region.origins.begin(), region.origins.end());
  if (sets.size() == 1) CheckMean(node, region);
}

void PeerCheckers::OnCounted(int node, const worker::JobCounted& counted, OriginId behind) {
  const std::vector<SnapshotId>& in = origins_.In(behind);
  const std::set<SnapshotId> inside(in.begin(), in.end());
  const double weight = WeightOf(inside);
  // A member that ends a count late says what the others have come to since.
  const bool heard = !told_.emplace(counted.averaging, counted.job_samples).second;
  if (heard && !counted_at_.contains(counted.job_samples - weight)) return;
  // What it has brought is not said, so it is taken from those that stand behind it.
  CheckCount(node,
             {.averaging = counted.averaging,
              .region = worker::Region::kInboxA,
              .samples = weight,
              .job_samples = counted.job_samples,
              .root = {}},
             inside);
}

// An agent describes the region to joiners by these hashes, and does not look at the values.
void PeerCheckers::CheckHashes(int node, const Deliver& deliver, const RegionBuffer& region) {
  if (deliver.hashes == nullptr) return;
  ++described_;
  const worker::ResultHashes& hashes = *deliver.hashes;
  size_t chunk = 0, at = 0;
  bool same = true;
  for (const uint64_t part : hashes.parts) {
    for (uint64_t left = part; left > 0 && same;) {
      const uint64_t count = std::min<uint64_t>(left, hashes.chunk_elements);
      const auto* bytes = reinterpret_cast<const uint8_t*>(region.values.data() + at);
      same =
          chunk < hashes.of_chunk.size() && at + count <= region.values.size() &&
          ContentHash(ByteView(bytes, count * sizeof(float)), hashes.key) == hashes.of_chunk[chunk];
      ++chunk;
      at += count;
      left -= count;
    }
  }
  if (!same || chunk != hashes.of_chunk.size() || at != region.values.size())
    Add("hashes", node, absl::StrCat("chunk ", chunk, " is not what the round has decided"));
}

// All elements have the same snapshots in them: the weighted mean of those, computed anew.
void PeerCheckers::CheckMean(int node, const RegionBuffer& region) {
  const std::vector<SnapshotId>& inside = origins_.In(region.origins.front());
  double weight = 0;
  for (const SnapshotId snapshot : inside) weight += snapshots_[snapshot].weight;
  if (inside.empty() || weight == 0) return;
  ++exact_;
  // The error is relative to the largest value; never to zero.
  double largest = 1e-3;
  double error = 0;
  for (size_t i = 0; i < region.values.size(); ++i) {
    double mean = 0;
    for (const SnapshotId id : inside) {
      const Snapshot& snapshot = snapshots_[id];
      const double value = snapshot.values[i];
      mean += snapshot.weight * value / weight;
      largest = std::max(largest, std::abs(value));
    }
    error = std::max(error, std::abs(mean - static_cast<double>(region.values[i])));
  }
  if (error > Tolerance(wire_) * largest)
    Add("S5", node, absl::StrCat("delivered value is ", error, " off the mean of its snapshots"));
}

double PeerCheckers::WeightOf(const std::set<SnapshotId>& snapshots) const {
  double weight = 0;
  for (const SnapshotId snapshot : snapshots) weight += snapshots_[snapshot].weight;
  return weight;
}

void PeerCheckers::CheckWeight(int node, const Deliver& deliver,
                               const std::set<SnapshotId>& inside) {
  const double weight = WeightOf(inside);
  // Samples are whole numbers here, so their sums are exact.
  if (weight != deliver.samples)
    Add("samples", node,
        absl::StrCat("averaging ", deliver.averaging.value(), ": final weight ", deliver.samples,
                     ", of its snapshots ", weight));
}

// Adds what `snapshot` brings to what was counted; false: some of it was counted before. Its weight
// is of its node's last samples; or, when an earlier averaging turned out not to have counted some,
// of all of those that were fresh in a set of snapshots, this one among them.
bool PeerCheckers::Count(SnapshotId snapshot, Counted& counted) const {
  if (counted.size() <= snapshot) counted.resize(snapshot + 1);
  if (counts_ == Counts::kTotals) return CountTotal(snapshot, counted);
  const double weight = snapshots_[snapshot].weight;
  std::vector<SnapshotId> open;  // of the node, newest first, not counted yet
  std::optional<SnapshotId> at = snapshot;
  double last = 0;
  size_t latest = 0;  // of `open`: they hold the last samples without a gap
  for (bool gap = false; at; at = snapshots_[*at].previous) {
    if (counted[*at]) {
      gap = true;
      continue;
    }
    open.push_back(*at);
    if (gap || last >= weight) continue;
    last += snapshots_[*at].fresh;
    latest = open.size();
  }
  const auto take = [&](size_t i) { counted[open[i]] = true; };
  if (last >= weight) {
    for (size_t i = 0; i < latest; ++i) take(i);
    return true;
  }
  open.resize(std::min(open.size(), kMaxOpen));
  for (uint32_t set = 1; set < 1U << open.size(); set += 2) {
    double sum = 0;
    for (size_t i = 0; i < open.size(); ++i)
      if (set >> i & 1) sum += snapshots_[open[i]].fresh;
    if (sum != weight) continue;
    for (size_t i = 0; i < open.size(); ++i)
      if (set >> i & 1) take(i);
    return true;
  }
  return false;
}

// All that the node has in the count is at most what it had trained.
bool PeerCheckers::CountTotal(SnapshotId snapshot, Counted& counted) const {
  if (counted[snapshot]) return false;
  counted[snapshot] = true;
  double sum = 0, total = 0;
  for (SnapshotId id = 0; id < counted.size(); ++id) {
    if (!counted[id] || snapshots_[id].node != snapshots_[snapshot].node) continue;
    sum += snapshots_[id].weight;
    total = std::max(total, snapshots_[id].samples_total);
  }
  return sum <= total;
}

namespace {
// Histories kept of one count. Lone members that step alike make sums that meet, and the sets
// behind them double with each averaging; one that is dropped can only raise a false alarm, never
// hide a broken count.
constexpr size_t kMaxHistories = 256;
}  // namespace

void PeerCheckers::CheckCount(int node, const Deliver& deliver,
                              const std::set<SnapshotId>& inside) {
  const double weight = WeightOf(inside);
  if (weight > deliver.samples)
    Add("samples", node, absl::StrCat("final weight ", deliver.samples, " is below ", weight));
  const double base = deliver.job_samples - deliver.samples;
  std::vector<Counted> before;
  // A count that begins at zero has nothing before it.
  if (base == 0) before.push_back({});
  if (const auto known = counted_at_.find(base); known != counted_at_.end())
    before.insert(before.end(), known->second.begin(), known->second.end());
  if (before.empty()) {
    Add("samples", node,
        absl::StrCat("averaging ", deliver.averaging.value(), ": count ", deliver.job_samples,
                     " after ", base, ", which nobody ever had"));
  }
  // Several histories can lead to one number; then at least one must fit.
  std::vector<Counted>& after = counted_at_[deliver.job_samples];
  bool fits = before.empty();
  for (Counted counted : before) {
    bool once = true;
    for (const SnapshotId id : inside) once = Count(id, counted) && once;
    fits = fits || once;
    if (after.size() < kMaxHistories &&
        std::find(after.begin(), after.end(), counted) == after.end())
      after.push_back(counted);
  }
  if (!before.empty()) ++counts_checked_;
  if (!fits)
    Add("twice", node,
        absl::StrCat("averaging ", deliver.averaging.value(), ": samples were counted before"));
}

}  // namespace crowdsurf::simulator
