// LeaseHolder: one member's side of the leases: its copy of the ledger, its trainer's stream, and
// what it claims in an averaging.
//
// A claim is a position in the member's own stream: everything up to there is in its parameters. So
// an averaging that is missed, or whose end is not heard, needs no memory here: the next claim says
// the same and more, and the ledger commits what is new. A stream that the ledger does not have any
// more was taken back: others train its samples, so what this trainer made of them must not enter
// the model. Then discards() holds until an average has taken the place of that. Owner: Averaging;
// single sequence. Source: docs/shard.md.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/core/shard/lease_ledger.h"

namespace crowdsurf::worker {

// kNone: it has trained nothing yet. kUnknown: something, beside an agent that is gone.
enum class TrainerPast : uint8_t { kNone, kUnknown };

class LeaseHolder {
 public:
  explicit LeaseHolder(const PeerId& self) : self_(self) {}

  // ---- the trainer
  void OnTrainer(TrainerPast past);
  void OnDeclared(const DataSpec& spec);  // it draws from this data
  void OnProgress(const StreamProgress& progress);
  void OnSnapshot(const StreamPosition& position);  // the snapshot that Claims speaks of
  void OnAdopted();  // a committed average took the place of all that it has trained
  void Discard();    // what it has trained from is stale, so it must not enter the model
  void Close();      // it leaves: it is to train nothing more
  // News for the trainer since the last call.
  std::optional<LeasesGranted> TakeNews();

  // ---- averagings
  // What goes with the snapshot into `averaging`.
  ClaimSet Claims(AveragingId averaging);
  // The snapshot has samples in it that others train, or is stale: it must have no weight.
  bool discards() const { return discarding_; }
  // The mean took the place of the snapshot.
  void OnDelivered();
  // What `averaging` has decided. False: another ledger than this one is needed to apply it.
  bool OnDecided(AveragingId averaging, const ClaimSet& decided, const std::set<PeerId>& members);

  // ---- the ledger
  const LeaseLedger& ledger() const { return ledger_; }
  bool OnLedger(LeaseLedger theirs);  // another member's. True: it was newer, and is ours now
  void OnLineage();                   // that of another lineage counts from now on: ours is dropped

  bool active() const { return !declared_.none() || !ledger_.empty(); }
  bool starving() const;  // the trainer waits for leases
  // The snapshot has samples of the stream that no committed average has.
  bool brings() const;
  // After Close: what is trained is not committed yet, as far as is known.
  bool hands_in() const;

 private:
  void Refresh();
  void LeaveStream();
  StreamPosition Granted(StreamPosition at) const;
  bool uncommitted() const;

  const PeerId self_;
  LeaseLedger ledger_;
  DataSpec declared_;  // by the trainer; none: it draws no leases
  uint64_t stream_ = 0;
  uint64_t committed_ = 0;    // of stream_, as last known
  uint64_t first_claim_ = 0;  // averaging of the first claim without a stream; 0: none yet
  StreamPosition trained_;
  bool waits_ = false;
  StreamPosition snapshot_;
  bool strange_ = false;  // the trainer trained before this peer knew it
  bool discarding_ = false;
  bool closed_ = false;
  bool news_ = false;
};

}  // namespace crowdsurf::worker
