// State donor: serves the last committed average and the trainer's opaque state to joiners.
//
// A pure state machine of the agent's host: it decides whom to serve and what; the host hashes,
// reads the inbox and sends. It remembers the states that the host still holds (at most two:
// inboxes alternate), admits a few joiners at a time, each with a bounded window, and forgets one
// that has been silent. Single sequence. Everything refused is counted by reason. Source: ours;
// docs/data-plane.md.
#pragma once

#include <cstdint>
#include <map>
#include <variant>
#include <vector>

#include "base/id.h"
#include "base/metrics.h"
#include "base/time.h"
#include "worker/core/state/state_message.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

struct StateDonorOptions {
  size_t max_joiners = 4;          // served at once; a donor trains and averages beside this
  size_t max_window = 16;          // chunks of one joiner that are being sent
  Duration silence = Seconds(10);  // after which a joiner's place is free again
  // An opaque state that is older is asked for again. Joiners fetch it for about a second a
  // gigabyte.
  Duration opaque_fresh = Seconds(5);
  // One that a joiner reads stays for so long: the joiner would begin it anew. A gigabyte at 15
  // Mbit/s; an optimizer's state of ten minutes ago is better than none.
  Duration opaque_kept = Seconds(600);
};

// To `to`: `message`, followed for a ChunkReply by bytes [offset, offset + bytes) of region
// `inbox`, or of the opaque state when inbox < 0.
struct SendState {
  PeerId to;
  StateMessage message;
  int inbox = 0;
  uint64_t offset = 0;
  uint32_t bytes = 0;  // 0: no payload
};

class StateDonor {
 public:
  StateDonor(StateDonorOptions options, MetricRegistry& metrics);

  // Inbox `inbox` holds this average until Retire. Replaces what the inbox held before.
  void Offer(int inbox, StateManifest manifest);
  // Inbox `inbox` is about to be written: what it held is answered with kGone from now on. Call
  // before the first write; chunks already handed to the transport must have been copied or sent by
  // then.
  void Retire(int inbox);
  // What the trainer gave now. `step`: of the averaging that its parameters were of; 0: not said.
  // False: a joiner reads the one before, which stays.
  bool SetOpaque(Time now, OpaqueState opaque, AveragingId step = {});
  // The trainer was asked, and gave none in time: joiners wait for none of this trainer again, as
  // long as what is here would be fresh.
  void OnOpaqueMissed(Time now);
  // From here on an average is offered only with the opaque state of the same step.
  void SetExact(bool exact) { exact_ = exact; }
  // The trainer should give its opaque state before a joiner is answered: there is none that goes
  // with the newest average, or it is old. While joiners fetch one it stays, as long as it is
  // fresh, or one of them reads it.
  bool WantsOpaque(Time now) const;

  // Nullopt: nothing to send (a message that is none of a joiner's; counted).
  std::optional<SendState> OnMessage(Time now, const PeerId& from, const StateMessage& message);
  // A chunk left for `to` (or failed): its place in the window is free.
  void OnSent(const PeerId& to);
  // `peer` said FetchOver: its place is free.
  void OnOver(const PeerId& peer) { joiners_.erase(peer); }
  void OnPeerDown(const PeerId& peer) { joiners_.erase(peer); }

  bool holds(AveragingId averaging) const;
  size_t joiners() const { return joiners_.size(); }

 private:
  struct Joiner {
    Time heard;
    Time read_opaque;  // a chunk of the present one; unset: not yet
    size_t sending = 0;
  };
  struct Offered {
    StateManifest manifest;
    Digest root;
  };
  const Offered* Newest() const;
  // The opaque state, by a joiner that has not fallen silent: it stays.
  bool IsRead(Time now) const;
  // The joiner's entry, admitted if there is room; nullptr when there is none.
  Joiner* Admit(Time now, const PeerId& from);
  SendState AnswerManifest(Time now, const PeerId& from, const ManifestRequest& request);
  SendState AnswerChunk(Time now, const PeerId& from, const ChunkRequest& request);

  const StateDonorOptions options_;
  std::map<int, Offered> offered_;  // by inbox
  OpaqueState opaque_;
  AveragingId opaque_step_;
  Time opaque_at_;             // when it was given; unset: never
  bool opaque_behind_ = true;  // an average was offered since then
  bool exact_ = false;
  std::map<PeerId, Joiner> joiners_;  // at most max_joiners
  Counter& chunks_;
  Counter& refused_busy_;
  Counter& refused_gone_;
  Counter& refused_garbled_;
};

}  // namespace crowdsurf::worker
