// Messages about averagings and their rounds (messages.h).
//
// Values; any thread. Bounds: messages_codec.cc. Source: docs/averaging.md.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "worker/core/port/contact.h"
#include "worker/core/power/edge_word.h"
#include "worker/core/shard/lease.h"
#include "worker/core/strategy/pair_word.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/register.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

namespace message {

// A frame of a round (round_codec.h) with what tells why an instance is unknown to the receiver.
struct RoundFrame {
  ViewHash view;
  uint64_t epoch = 0;
  AveragingId averaging = {};
  uint8_t round = 0;
  CellIndex group = 0;  // least cell of the group
  Bytes frame;
  bool operator==(const RoundFrame&) const = default;
};
// The sender is due for `averaging`; with it, what it has committed.
struct DueFor {
  ViewHash view;
  AveragingId averaging = {};
  Committed committed;
  Digest seats;  // Seating::MinorHash: a peer that knows others tells them
  bool operator==(const DueFor&) const = default;
};
// Half of the members are due: averaging `averaging` opens. Forwarded once.
struct Begin {
  ViewHash view;
  AveragingId averaging = {};
  bool operator==(const Begin&) const = default;
};
// The list of this group in this round follows from these seats alone: bytes have moved under it.
// To a member that opened the round under another list.
struct ListInUse {
  ViewHash view;
  AveragingId averaging = {};
  uint8_t round = 0;
  CellIndex group = 0;
  std::vector<Seat> seats;
  std::vector<Vacancy> vacancies;
  bool operator==(const ListInUse&) const = default;
};
// Under which list is this group's round open at you? (a speaker that knows another one)
struct ListAsk {
  InstanceId instance;
  bool operator==(const ListAsk&) const = default;
};
// Was my weight in the decided value of this instance? (a member that was KEPT in round 0)
struct CountedAsk {
  InstanceId instance;
  bool operator==(const CountedAsk&) const = default;
};
struct CountedAnswer {
  InstanceId instance;
  bool counted = false;
  bool operator==(const CountedAnswer&) const = default;
};
// The sender's trainer waits for leases, or it leaves with trained samples: `averaging` is wanted
// at once.
struct LeasesWanted {
  ViewHash view;
  AveragingId averaging = {};
  bool operator==(const LeasesWanted&) const = default;
};
// The sender may have missed an averaging below `next`, and has the ledger `mark`.
struct LedgerAsk {
  ViewHash view;
  AveragingId next = {};
  LedgerMark mark;
  bool operator==(const LedgerAsk&) const = default;
};
// The answer, once those averagings are over at its sender.
struct LedgerNews {
  ViewHash view;
  Bytes ledger;  // LeaseLedger; empty: it has none that is newer
  bool operator==(const LedgerNews&) const = default;
};
struct Pair {  // of an exchange of two members (pair_exchange.h)
  ViewHash view;
  PairWord word;
  bool operator==(const Pair&) const = default;
};
struct Neighbour {  // of two neighbours that exchange frames (power_exchange.h)
  ViewHash view;
  EdgeWord word;
  bool operator==(const Neighbour&) const = default;
};

}  // namespace message

}  // namespace crowdsurf::worker
