// View: an agreed, immutable, numbered picture of who is in the job (DESIGN 4 "View").
//
// A view is the decided value of one Paxos register ("successor of the parent view",
// round-protocol.md 9), except a branch, which is decided by all of its own members (section 6).
// Its hash covers everything but the seats. Seats are the grow-only minor state beside it: free
// cells that the steward gave to joiners, and cells that it declared vacated; sets of them merge by
// union, so order and loss do not matter. Values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "worker/core/averaging_config.h"
#include "worker/core/grid.h"

namespace crowdsurf::worker {

struct ViewHashTag;
using ViewHash = FixedId<ViewHashTag, 32>;

// What a view remembers of a member. Endpoints are not here: they come from the roster.
struct Member {
  PeerId id;
  CellIndex cell = 0;
  int64_t joined_unix_ms = 0;  // longest-lived first: stewardship and witnesses (ties by id)
  bool on_demand = false;
  uint32_t bandwidth_class =
      0;  // log2-ish class of measured bytes/s, 0 unknown; part sizes are a function of it
  bool operator==(const Member&) const = default;
};

struct View {
  uint64_t epoch = 0;  // parent's + 1
  ViewHash parent;     // none: a first view
  bool branch = false;
  uint64_t fork_members = 0;  // branch: members at the fork (more wins, then the smaller hash)
  Grid grid;
  std::vector<Member> members;    // ascending by id; at most kMostMembers
  std::vector<PeerId> witnesses;  // min(N, 15); [0] breaks ties
  uint64_t seed = 0;
  uint64_t first_averaging = 0;  // the first averaging number that this view may open
  double base_samples = 0;       // job-wide sample count when the view was proposed
  AveragingConfig config;        // spec.averaging as of config.generation: only this copy acts
  bool target_met = false;       // the job is over: raise `stop`

  const Member* Find(const PeerId& id) const;
};

inline constexpr size_t kMostMembers = 100'000;
inline constexpr size_t kMostWitnesses = 15;

Bytes Encode(const View& view);  // canonical: equal views, equal bytes
std::optional<View> DecodeView(
    ByteView bytes);  // nullopt: garbled, unordered, duplicate cell or over a limit
ViewHash HashOf(const View& view, const std::string& job);  // Sha256 over job and Encode(view)

// Witnesses of a member list: on-demand first, then longest-lived, then id; at most kMostWitnesses.
std::vector<PeerId> ChooseWitnesses(const std::vector<Member>& members);
// More than half of `witnesses`, or exactly half with witnesses[0]: any two quorums meet
// (round-protocol.md 1).
bool IsQuorum(const std::vector<PeerId>& witnesses, const std::set<PeerId>& present);

// A free cell that a steward gave to a joiner, or took back from a member that is gone.
struct Seat {
  Member member;
  PeerId steward;                 // who signed it
  int64_t steward_joined_ms = 0;  // of two seats for one cell the one by the older steward stands
  bool operator==(const Seat&) const = default;
};
struct Vacancy {
  PeerId peer;  // this member left its cell for good (ids never come back to life)
  auto operator<=>(const Vacancy&) const = default;
};

// A view with its minor state. Merge is commutative, associative and idempotent.
class Seating {
 public:
  Seating() = default;
  Seating(View view, ViewHash hash);

  const View& view() const { return view_; }
  const ViewHash& hash() const { return hash_; }
  // True when something changed. A seat on a cell that the view or an older steward's seat holds is
  // ignored, unless that occupant is vacated.
  bool Add(const Seat& seat);
  bool Add(const Vacancy& vacancy);
  bool Merge(const Seating& other);  // pre: same hash

  // Who sits where now, ascending by cell; holes are absent.
  const std::map<CellIndex, Member>& occupants() const { return occupants_; }
  std::optional<CellIndex> CellOf(const PeerId& id) const;
  const Member* At(CellIndex cell) const;
  std::optional<CellIndex> FreeCell() const;  // the least one
  std::vector<Seat> seats() const;
  std::vector<Vacancy> vacancies() const;

 private:
  void Recompute();
  View view_;
  ViewHash hash_;
  std::map<CellIndex, std::vector<Seat>>
      seats_;  // by cell; bounded by members + joins since the view
  std::set<Vacancy> vacancies_;
  std::map<CellIndex, Member> occupants_;
  std::map<PeerId, CellIndex> cell_of_;
};

}  // namespace crowdsurf::worker
