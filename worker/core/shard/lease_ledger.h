// LeaseLedger: which samples are committed, who holds which leases, and what is granted next.
//
// A replicated state: it changes by Commit alone, with what an averaging has decided, so members
// that apply the same decided values have equal ledgers, bit by bit. Each sample of the epochs is
// in one place: committed, held by one worker, to be granted again, or not granted yet. Commit
// moves it from one to another, so it cannot be committed twice. Committed samples take no memory:
// they are the rest. Owner: LeaseHolder; single sequence. Bounds: kMaxClaims holders, kMaxOpen
// leases. Source: docs/shard.md.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>

#include "base/bytes.h"
#include "worker/core/shard/lease.h"

namespace crowdsurf::worker {

class LeaseLedger {
 public:
  static constexpr size_t kMaxOpen = 65'536;  // leases; above it nothing new is granted
  // Leases of one holder. A grant ends there: each epoch of a data set of few samples is a lease.
  static constexpr size_t kMaxHeld = 1024;

  struct Holder {
    uint64_t stream = 0;     // the averaging that granted it first
    uint64_t position = 0;   // committed samples of the stream
    std::deque<Lease> open;  // what follows them, in order
    bool operator==(const Holder&) const = default;
    uint64_t end() const;  // position after all that is granted
  };
  struct Totals {              // since the job began
    uint64_t committed = 0;    // samples
    uint64_t returned = 0;     // samples of leases that were taken back: granted again
    uint64_t void_claims = 0;  // of streams that had been taken back
    bool operator==(const Totals&) const = default;
  };

  // What averaging `averaging` has decided: each claim is settled, a holder that is none of
  // `members` loses its leases, then leases are granted. Pre: the claims are valid, and their base
  // is mark().
  void Commit(AveragingId averaging, const ClaimSet& decided, const std::set<PeerId>& members);

  const DataSpec& spec() const { return spec_; }
  LedgerMark mark() const { return mark_; }
  bool empty() const { return spec_.none(); }
  const Holder* Find(const PeerId& peer) const;
  const std::map<PeerId, Holder>& holders() const { return holders_; }
  const std::set<Lease>& returned() const { return returned_; }
  const Lease& next() const { return next_; }  // the first that was never granted; count is 0
  const Totals& totals() const { return totals_; }
  bool operator==(const LeaseLedger&) const = default;

  Bytes Encode() const;
  static std::optional<LeaseLedger> Decode(
      ByteView bytes);  // nullopt: garbled, or no state of ours

 private:
  void Settle(const LeaseClaim& claim);
  void TakeBack(std::map<PeerId, Holder>::iterator holder);
  void Grant(AveragingId averaging, const LeaseClaim& claim);
  Lease TakeNext(uint64_t count);
  size_t open() const;
  uint64_t HashOfContents() const;
  bool Whole() const;

  DataSpec spec_;
  LedgerMark mark_;
  std::map<PeerId, Holder> holders_;
  std::set<Lease> returned_;  // to be granted again, first
  Lease next_;
  Totals totals_;
};

}  // namespace crowdsurf::worker
