// Confirmation: is a view that one member names known to others, too?
//
// News of a view is a hint. Before a member acts on it, it asks others directly. A successor of the
// view it holds needs a quorum of that view's witnesses: those that name it as decided, and those
// that accepted it at one same ballot. (Accepted at different ballots it need not be chosen.) A
// view of another lineage needs two different members of that view that are in it. So does a
// successor where no quorum says either. There the word of the held view's steward is enough, too:
// those that decided with it may be dead, it proposes nothing there any more, and a steward could
// have any view decided. For a newcomer it is enough that the second one is a newcomer, too, and
// was told the same: a first view has no older members. The names in a view are its teller's own:
// whose word counts, and whether one is enough, the asking member says (Company). Asks go out again
// after 20 ms, then twice as late each time, at most kMaxAsks times. Owner: Membership, single
// sequence. Source: docs/views.md, Confirming.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "base/time.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/view_messages.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

class Confirmation {
 public:
  enum class Rule : uint8_t { kQuorum, kTwoMembers, kNewcomer };
  enum class Verdict : uint8_t {
    kOpen,       // ask on
    kConfirmed,  // act on it
    kRefuted,    // a quorum of the witnesses, or enough members, do not know it
    kSilent,     // no quorum says either
  };
  // What the asking member knows of others by itself, now.
  struct Company {
    const std::set<PeerId>& down;
    // kTwoMembers, kNewcomer: the word of this peer counts. Empty: every voter's does.
    std::function<bool(const PeerId&)> counts = {};
    size_t least = 2;  // voters that must name the view; 1 where no other could
  };
  static constexpr uint32_t kMaxAsks = 8;
  static constexpr size_t kAskedAtOnce = 4;  // members; witnesses are all asked

  // `held`: the view that the asking member is in, none for a joiner. `voters`: its witnesses, in
  // order, for kQuorum; else the members of `named` without the asking one. `steward`: of
  // `held`, for kTwoMembers and a successor; else none.
  Confirmation(Rule rule, const ViewHash& held, const ViewHash& named, std::vector<PeerId> voters,
               const PeerId& steward = PeerId());

  // The latest word of a voter counts, but none takes back that it knows the view. Others are
  // ignored.
  void OnVote(const PeerId& from, const message::ViewVote& vote);
  void Withdraw(const PeerId& voter) { votes_.erase(voter); }
  // When it is time to: asks the voters that count and have not named the view, except those that
  // are down and `self`.
  void OnTimer(Time now, const PeerId& self, const Company& company, Actions& out);
  Time NextDeadline() const { return deadline_; }
  Verdict Judge(Time now, const Company& company) const;
  Rule rule() const { return rule_; }
  const std::vector<PeerId>& voters() const { return voters_; }

 private:
  bool Confirmed(const Company& company) const;
  bool Counts(const PeerId& voter, const Company& company) const;
  bool Names(const PeerId& voter) const;
  bool IsVoter(const PeerId& peer) const;
  // Per ballot, those that accepted it, and all those that name it as decided; the latter alone
  // under ballot 0.
  std::map<Ballot, std::set<PeerId>> Supporters() const;
  std::set<PeerId> Live(const Company& company) const;

  Rule rule_;
  ViewHash held_;
  ViewHash named_;
  std::vector<PeerId> voters_;
  PeerId steward_;                             // none: nobody
  std::map<PeerId, message::ViewVote> votes_;  // at most one a voter
  uint32_t asks_ = 0;
  size_t next_ = 0;  // voter to be asked next
  Time deadline_;
};

}  // namespace crowdsurf::worker
