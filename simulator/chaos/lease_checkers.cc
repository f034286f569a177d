#include "simulator/chaos/lease_checkers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <optional>

namespace crowdsurf::simulator {

using worker::Lease;
using worker::LeaseLedger;

void LeaseCheckers::OnSnapshot(int node, SnapshotId snapshot, size_t done) {
  snapshots_[snapshot] = {.node = node, .done = done, .weight = 0};
}

void LeaseCheckers::OnWeighed(SnapshotId snapshot, double weight) {
  if (const auto at = snapshots_.find(snapshot); at != snapshots_.end()) at->second.weight = weight;
}

void LeaseCheckers::OnDelivered(int node, const worker::Deliver& deliver,
                                const std::set<SnapshotId>& inside,
                                const std::map<int, const LeaseTrainer*>& trainers) {
  for (const SnapshotId id : inside) {
    const auto at = snapshots_.find(id);
    if (at == snapshots_.end()) continue;
    const Snapshot& snapshot = at->second;
    if (snapshot.weight > 0) {
      Commit(snapshot, *trainers.at(snapshot.node));
    } else if (snapshot.node == node) {  // without weight it is only replaced
      settled_[node] = std::max(settled_[node], snapshot.done);
    }
  }
  CheckLedger(deliver);
}

void LeaseCheckers::Commit(const Snapshot& snapshot, const LeaseTrainer& trainer) {
  size_t& settled = settled_[snapshot.node];
  for (; settled < snapshot.done; ++settled) {
    const Lease& lease = trainer.batches()[settled].lease;
    for (uint64_t i = 0; i < lease.count; ++i) {
      const auto [at, fresh] =
          committed_.emplace(Sample(lease.epoch, lease.begin + i), snapshot.node);
      if (!fresh)
        violations_.Add("lease", absl::StrCat("sample ", lease.begin + i, " of epoch ", lease.epoch,
                                              " is committed by node ", snapshot.node,
                                              ", and was by node ", at->second));
    }
  }
}

// What the members agree on against the account that is kept here.
void LeaseCheckers::CheckLedger(const worker::Deliver& deliver) {
  if (deliver.averaging <= newest_ || deliver.ledger.empty()) return;
  const auto ledger = LeaseLedger::Decode(deliver.ledger);
  if (!ledger || ledger->mark().averaging != deliver.averaging)
    return violations_.Add("lease", "a ledger is of another averaging, or does not decode");
  newest_ = deliver.averaging;
  ledger_ = *ledger;
  if (ledger->totals().committed != committed_.size())
    violations_.Add("lost", absl::StrCat("averaging ", newest_.value(), ": the ledger has ",
                                         ledger->totals().committed, " samples committed, ",
                                         committed_.size(), " are"));
}

// All that was granted is committed, or is open in the ledger.
void LeaseCheckers::CheckWhole() {
  std::set<Sample> open;
  const auto add = [&](const Lease& lease) {
    for (uint64_t i = 0; i < lease.count; ++i) open.emplace(lease.epoch, lease.begin + i);
  };
  for (const Lease& lease : ledger_.returned()) add(lease);
  for (const auto& [peer, holder] : ledger_.holders())
    for (const Lease& lease : holder.open) add(lease);
  const Lease& next = ledger_.next();
  for (uint64_t epoch = 0; epoch <= next.epoch; ++epoch) {
    const uint64_t end = epoch < next.epoch ? data_.samples : next.begin;
    uint64_t whole = 0;
    for (uint64_t at = 0; at < end; ++at) {
      const Sample sample(epoch, at);
      const bool committed = committed_.contains(sample);
      whole += committed ? 1 : 0;
      if (committed == open.contains(sample))
        violations_.Add("lost", absl::StrCat("sample ", at, " of epoch ", epoch, " is ",
                                             committed ? "committed and open" : "neither"));
    }
    epochs_ += whole == data_.samples ? 1 : 0;
  }
}

void LeaseCheckers::CheckEnd(const std::map<int, std::pair<const LeaseTrainer*, End>>& nodes,
                             Time now) {
  CheckWhole();
  std::map<Sample, std::vector<int>> trained;
  for (const auto& [node, at] : nodes) {
    const size_t done = at.first->Done(now);
    for (size_t i = 0; i < done; ++i) {
      const Lease& lease = at.first->batches()[i].lease;
      for (uint64_t s = 0; s < lease.count; ++s)
        trained[{lease.epoch, lease.begin + s}].push_back(node);
    }
  }
  for (const auto& [sample, by] : trained) {
    const auto committed = committed_.find(sample);
    std::optional<int> kept;  // whose result counts, or is to count
    if (committed != committed_.end()) kept = committed->second;
    for (const int node : by) {
      const End end = nodes.at(node).second;
      if (!kept && end == End::kLives) kept = node;
      if (kept == node && std::count(by.begin(), by.end(), node) == 1) continue;
      if (end == End::kLeft)
        violations_.Add("notice", absl::StrCat("sample ", sample.second, " of epoch ", sample.first,
                                               ": the result of node ", node, ", which left"));
      else if (end == End::kLives)
        violations_.Add("retrained",
                        absl::StrCat("sample ", sample.second, " of epoch ", sample.first,
                                     " is trained again, and node ", node, " lives"));
    }
    retrained_ += by.size() - 1;
  }
}

}  // namespace crowdsurf::simulator
