// View: an agreed, immutable, numbered picture of who is in the job (docs/views.md).
//
// A view is the decided value of one Paxos register ("successor of the parent view",
// docs/views.md), except a branch, which is decided by all of its own members.
// Its hash covers everything but the seats. Seats are the grow-only minor state beside it: free
// cells that the steward gave to joiners, and cells that it declared vacated; sets of them merge by
// union, so order and loss do not matter. Values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "worker/core/view/averaging_config.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/grid.h"
#include "worker/core/view/view_hash.h"

namespace crowdsurf::worker {

// What a view remembers of a member. Endpoints are not here: they come from the roster.
struct Member {
  PeerId id;
  CellIndex cell = 0;
  int64_t joined_unix_ms = 0;  // longest-lived first: stewardship and witnesses (ties by id)
  bool on_demand = false;
  uint32_t bandwidth_class =
      0;  // log2-ish class of measured bytes/s, 0 unknown; part sizes are a function of it
  auto operator<=>(const Member&) const = default;
};

struct View {
  uint64_t epoch = 0;  // parent's + 1
  ViewHash parent;     // none: a first view
  ViewHash origin;     // first view of this lineage; none: this is it
  bool branch = false;
  uint64_t fork_members =
      0;  // members when it was made: of two lineages the larger wins, then the smaller origin
  Grid grid;
  std::vector<Member> members;    // ascending by id; at most kMaxMembers
  std::vector<PeerId> witnesses;  // min(N, 15); [0] breaks ties
  uint64_t seed = 0;
  AveragingId first_averaging = {};  // the first averaging number that this view may open
  AveragingId barrier = {};          // averagings below this one belong to the parent
  double base_samples = 0;           // job-wide sample count when the view was proposed
  AveragingConfig config;            // spec.averaging as of config.generation: only this copy acts
  bool target_met = false;           // the job is over: raise `stop`

  const Member* Find(const PeerId& id) const;
};

// Names the lineage that a view belongs to: its first view's hash.
inline ViewHash OriginOf(const View& view, const ViewHash& hash) {
  return view.origin.none() ? hash : view.origin;
}

inline constexpr size_t kMaxMembers = 100'000;
inline constexpr size_t kMaxWitnesses = 15;
// Averaging numbers, epochs and generations. Far from wrapping: 1,000 a second take 8,900 years.
inline constexpr uint64_t kMaxNumber = 1ULL << 48;
inline constexpr int64_t kMaxUnixMs = 1LL << 48;
inline constexpr double kMaxSamples = 1e18;
inline constexpr double kMaxSeconds = 4e9;  // of a job; a Duration holds twice as many
inline constexpr uint32_t kMaxBandwidthClass = 64;
// Sittings of a peer in one view. A peer that used them up waits for the next view.
inline constexpr uint32_t kMaxSittings = 1U << 20;

Bytes Encode(const View& view);  // canonical: equal views, equal bytes
// Why no peer may act on a view.
enum class ViewFlaw : uint8_t {
  kNone,
  kConfig,
  kForkMembers,
  kGarbled,
  kGrid,
  kMembers,
  kNumber,
  kSize,
  kStrategy,
  kWitnesses,
};
// Of each, in the same order: the label `reason` of crowdsurf_peer_messages_refused_total.
inline constexpr auto kViewFlaws = std::to_array<std::string_view>({
    "",
    "view_config",
    "view_fork_members",
    "view_garbled",
    "view_grid",
    "view_members",
    "view_number",
    "view_size",
    "view_strategy",
    "view_witnesses",
});
static_assert(kViewFlaws.size() == static_cast<size_t>(ViewFlaw::kWitnesses) + 1);

// Checks bounds, the strategy's limits, cells, members and witnesses. O(members * log(members)).
ViewFlaw FlawOf(const View& view);
// nullopt: garbled, or it has a flaw: *why, if asked for.
std::optional<View> DecodeView(ByteView bytes, ViewFlaw* why = nullptr);
ViewHash HashOf(const View& view, const std::string& job);  // Sha256 over job and Encode(view)

// Witnesses of a member list: on-demand first, then longest-lived, then id; at most kMaxWitnesses.
std::vector<PeerId> ChooseWitnesses(const std::vector<Member>& members);
// More than half of `witnesses`, or exactly half with witnesses[0]: any two quorums meet
// (docs/views.md).
bool IsQuorum(const std::vector<PeerId>& witnesses, const std::set<PeerId>& present);

// A free cell that a steward gave to a joiner, or took back from a member that is gone.
struct Seat {
  Member member;
  PeerId steward;                 // who signed it
  int64_t steward_joined_ms = 0;  // of two seats for one cell the one by the older steward stands
  uint32_t sitting = 0;  // 0: the view's own list; a peer that was vacated by mistake sits again
  AveragingId first_averaging = {};  // from this one on it is expected
  auto operator<=>(const Seat&) const = default;
};
struct Vacancy {
  PeerId peer;           // this member left its cell
  uint32_t sitting = 0;  // ends this and all earlier sittings of the peer
  // From this one on it is a hole. Lists of averagings under way keep it, so that nobody disagrees
  // about them; their rounds repair its absence.
  AveragingId first_averaging = {};
  auto operator<=>(const Vacancy&) const = default;
};

// Every number is within its bound above.
bool IsSound(const Seat& seat);
bool IsSound(const Vacancy& vacancy);

// Seats and vacancies that one view may gather before it is renewed; more are ignored.
inline constexpr size_t kMaxSeats = 1U << 17;

// A view with its minor state. Merge is commutative, associative and idempotent: occupants are a
// function of the sets alone.
class Seating {
 public:
  Seating() = default;
  Seating(View view, ViewHash hash);

  const View& view() const { return view_; }
  const ViewHash& hash() const { return hash_; }
  // True when the sets changed. Of several claims to a cell the view's own member stands first,
  // then the seat by the oldest steward; vacated claims do not count. A seat of sitting 0, of a
  // cell outside the grid, in a view that gives no seats, over a limit above or beyond kMaxSeats
  // is ignored. O(members).
  bool Add(const Seat& seat);
  bool Add(const Vacancy& vacancy);
  bool Merge(const std::vector<Seat>& seats, const std::vector<Vacancy>& vacancies);

  // Who sits where now, ascending by cell; holes are absent.
  const std::map<CellIndex, Member>& occupants() const { return occupants_; }
  std::optional<CellIndex> CellOf(const PeerId& id) const;
  const Member* At(CellIndex cell) const;
  const Member* Find(const PeerId& id) const;
  std::optional<CellIndex> FreeCell() const;  // the least one
  // The sitting a new seat for `id` must carry to count: one above its last vacancy. Above
  // kMaxSittings when they are used up: such a seat is ignored.
  uint32_t NextSitting(const PeerId& id) const;
  // The sitting that a vacancy must name to end `id`'s present seat.
  uint32_t SittingOf(const PeerId& id) const;
  bool Vacated(const PeerId& id) const { return !CellOf(id) && last_vacancy_.contains(id); }
  const std::set<Seat>& seats() const { return seats_; }
  const std::set<Vacancy>& vacancies() const { return vacancies_; }
  // Over seats and vacancies: equal for equal sets.
  Digest MinorHash() const;
  // As averaging `averaging` sees it: without the seats and vacancies that begin later.
  Seating AsOf(AveragingId averaging) const;

 private:
  bool Insert(const Seat& seat);
  bool Insert(const Vacancy& vacancy);
  void Recompute();
  View view_;
  ViewHash hash_;
  std::set<Seat> seats_;
  std::set<Vacancy> vacancies_;
  std::map<PeerId, uint32_t> last_vacancy_;  // highest sitting that ended
  std::map<CellIndex, Member> occupants_;
  std::map<PeerId, CellIndex> cell_of_;
};

// Codec of the minor state, bounded by kMaxSeats.
void Encode(const Seat& seat, ByteWriter& out);
void Encode(const Vacancy& vacancy, ByteWriter& out);
std::optional<Seat> DecodeSeat(ByteReader& in);
std::optional<Vacancy> DecodeVacancy(ByteReader& in);

}  // namespace crowdsurf::worker
