// MessageRefusal: why a message of a peer is refused. It changes nothing and is counted.
//
// In alphabetical order, as in the metric. Flaws of a view that a message carries have names of
// their own (ViewFlaw).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace crowdsurf::worker {

enum class MessageRefusal : uint8_t {
  kBallotOfAnother,
  kBranchOfAnother,
  kGarbled,
  kJoinForAnother,
  kOtherView,
  kOwn,
  kRosterFull,
  kRosterOldBoot,
  kRosterRecord,
  kSeatOfAnother,
  kTooManyFetches,
  kTooManyJoiners,
  kTooManySeatsTold,
  kTooManyViews,
  kVacancySitting,
  kViewNoQuorum,
  kViewParent,
  kViewUnconfirmed,
};
// Of each, in the same order: the label `reason` of crowdsurf_peer_messages_refused_total.
inline constexpr auto kMessageRefusals = std::to_array<std::string_view>({
    "ballot_of_another",
    "branch_of_another",
    "garbled",
    "join_for_another",
    "other_view",
    "own",
    "roster_full",
    "roster_old_boot",
    "roster_record",
    "seat_of_another",
    "too_many_fetches",
    "too_many_joiners",
    "too_many_seats_told",
    "too_many_views",
    "vacancy_sitting",
    "view_no_quorum",
    "view_parent",
    "view_unconfirmed",
});
static_assert(kMessageRefusals.size() == static_cast<size_t>(MessageRefusal::kViewUnconfirmed) + 1);

}  // namespace crowdsurf::worker
