// Messages by which a next view is decided, confirmed, or branches off (messages.h).
//
// Values; any thread. Bounds: messages_codec.cc. Source: docs/views.md.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/register.h"
#include "worker/core/view/view_hash.h"

namespace crowdsurf::worker {

namespace message {

// Is `named` decided, as far as you know? From a member of `held` (confirmation.h).
struct ViewVoteAsk {
  ViewHash held;  // none: of no view
  ViewHash named;
  bool operator==(const ViewVoteAsk&) const = default;
};
struct ViewVote {
  ViewHash named;
  enum class Kind : uint8_t {
    kUnknown,
    kHeld,      // a newcomer was told of it, and waits for others to name it
    kAccepted,  // as a witness of `held`, at `ballot`
    kDecided    // it is in it, was, or goes there next
  } kind = Kind::kUnknown;
  Ballot ballot = 0;
  bool operator==(const ViewVote&) const = default;
};
// Paxos on the register "successor of `parent`" (successor.h).
struct ViewOpen {
  ViewHash parent;
  Ballot ballot = 0;
  bool operator==(const ViewOpen&) const = default;
};
struct ViewPromise {
  ViewHash parent;
  Ballot ballot = 0;
  Ballot promised = 0;  // > ballot: refused
  Ballot accepted = 0;
  Bytes value;             // the accepted view
  AveragingId begun = {};  // highest averaging with bytes under way at this witness, in `parent`
  bool operator==(const ViewPromise&) const = default;
};
struct ViewAccept {
  ViewHash parent;
  Ballot ballot = 0;
  Bytes view;
  bool operator==(const ViewAccept&) const = default;
};
struct ViewAccepted {
  ViewHash parent;
  Ballot ballot = 0;
  Ballot promised = 0;  // > ballot: refused
  bool operator==(const ViewAccepted&) const = default;
};
// A branch of `parent` (branching.h): a peer that answers has left the parent.
struct BranchOpen {
  ViewHash parent;
  uint32_t attempt = 0;
  bool operator==(const BranchOpen&) const = default;
};
struct BranchJoin {
  ViewHash parent;
  uint32_t attempt = 0;
  AveragingId next_averaging = {};
  bool operator==(const BranchJoin&) const = default;
};
struct BranchView {
  ViewHash parent;
  uint32_t attempt = 0;
  Bytes view;
  bool operator==(const BranchView&) const = default;
};
struct BranchHeld {
  ViewHash parent;
  uint32_t attempt = 0;
  bool operator==(const BranchHeld&) const = default;
};

}  // namespace message

}  // namespace crowdsurf::worker
