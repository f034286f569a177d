// State fetch: how a joiner gets the last committed average, and one donor's opaque trainer state.
//
// A pure state machine of the agent's host, one instance a fetch. It asks several donors in
// parallel, keeps at most a window of requests at each, verifies every chunk against the manifest,
// asks again elsewhere when a donor dies, is busy, or is slow (a hedge: the first answer counts),
// and moves to a newer average when nobody serves the old one any more. It keeps the chunks whose
// hash is the same; a fetch that may mix keeps all that it has, so that it ends however often the
// donors go on. Chunk bytes stay with the host: it hashes what arrives, asks here, and stores on
// KeepChunk. The opaque state comes from one donor; when that fails it is begun anew at another,
// and given up last. Single sequence. Bounds: donors, chunks, moves of a fetch that may not mix,
// and a deadline for each progress. Source: ours; docs/data-plane.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/id.h"
#include "base/metrics.h"
#include "base/time.h"
#include "worker/core/state/state_message.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

struct StateFetchOptions {
  AveragingId averaging = {};  // fetch this number only; 0: the newest that is offered
  Digest committed;            // when set, only the average with this round root
  Digest schema;               // of the own trainer: others are refused
  uint64_t elements = 0;       // the same: as many, or twice as many with a velocity
  bool want_opaque = true;
  // Gradients: the opaque state must go with the average: of one step, or nothing is taken.
  bool exact_opaque = false;
  // Chunks of several averages are as good as those of one: what comes is replaced by the first
  // averaging of who fetches it (docs/averaging.md, Joiners). Never with first parameters.
  bool mix = false;
  // Bytes, 2^18 parts; a donor with more is used for chunks only. The edge bounds them by its room.
  uint64_t max_opaque = 64ULL << 30;
  size_t max_donors = 16;  // further offers are dropped, counted
  size_t window = 8;       // requests open at one donor: 1 MiB of a round's chunks
  // A donor that owes an answer and says nothing for so long has failed. On a thin link answers
  // come one after the other, so it counts from the last one.
  Duration answer = Seconds(2);
  Duration min_hedge = Milliseconds(50);    // hedge after max(this, 4 x the median answer time)
  Duration busy_pause = Milliseconds(200);  // before a busy donor is asked again
  // Where averagings follow each other, a member has nothing to give for most of the time: between
  // two of them it does. So it is asked so often, a pause apart, before it counts as no donor.
  int most_empty = 25;
  Duration opaque_patience = Seconds(5);  // for an opaque state when everything else is there
  Duration alone_patience = Seconds(1);   // for a new donor when all known ones have failed
  // Without any progress for so long: FetchFailed. Less than that waits for a place at busy donors.
  Duration stalled = Seconds(30);
  // Moves to a newer average of a fetch that may not mix; then its donors go on faster than it
  // comes, and it has failed.
  size_t max_moves = 4;
};

// Send `message` (a ManifestRequest, a ChunkRequest, or the FetchOver that ends it) to `to`.
struct AskDonor {
  PeerId to;
  StateMessage message;
};
struct KeepChunk {  // store the arrived bytes at `offset` of the region being filled
  uint32_t chunk = 0;
  uint64_t offset = 0;
};
struct KeepOpaque {  // store the arrived bytes at `offset` of the opaque buffer of `bytes` in all
  uint64_t offset = 0, bytes = 0;
};
// The opaque buffer is full: hash it and call OnOpaqueVerified.
struct VerifyOpaque {
  Digest hash;
};
struct FetchDone {
  StateManifest manifest;
  bool opaque = false;  // the opaque buffer is whole and verified
  bool mixed = false;   // chunks are of several averages, the manifest's is the newest of them
};
struct FetchFailed {
  std::string why;
};
using FetchAction =
    std::variant<AskDonor, KeepChunk, KeepOpaque, VerifyOpaque, FetchDone, FetchFailed>;
using FetchActions = std::vector<FetchAction>;

class StateFetch {
 public:
  StateFetch(Time now, StateFetchOptions options, MetricRegistry& metrics);

  // `peer` may have it (roster): it is asked for its manifest. Known donors are left as they are.
  void OnDonor(Time now, const PeerId& peer, FetchActions& out);
  // What followed a ChunkReply in its frame, as the host that holds it measured it.
  struct Payload {
    uint64_t bytes = 0;
    uint64_t hash = 0;  // HashOf; ignored for opaque chunks
  };
  // Of what arrives, as the manifest that is being fetched hashes it; 0 before there is one.
  uint64_t HashOf(ByteView payload) const { return target_ ? target_->Hash(payload) : 0; }
  // A ManifestReply or ChunkReply of `from`.
  void OnReply(Time now, const PeerId& from, const StateMessage& message, const Payload& payload,
               FetchActions& out);
  void OnDonorFailed(Time now, const PeerId& peer, FetchActions& out);
  void OnOpaqueVerified(Time now, FetchActions& out);
  void OnOpaqueCorrupt(Time now, FetchActions& out);  // its hash is another: asked of another donor
  void OnTimer(Time now, FetchActions& out);
  Time NextDeadline() const;  // Infinite once done

  bool finished() const { return finished_; }
  size_t chunks_kept() const { return kept_; }

 private:
  struct Ask {
    Time at;
    bool opaque = false;
    uint32_t chunk = 0;
    bool ripe = false;  // open for so long that another donor may be asked as well
  };
  struct Donor {
    bool failed = false;
    bool bad_opaque = false;
    Time manifest_asked;  // unset: not asked
    std::optional<StateManifest> manifest;
    Digest root;
    OpaqueState opaque;
    std::vector<Ask> open;  // at most window
    Time heard;             // its last answer; unset: none yet
    size_t gave = 0;        // chunks under its present manifest
    Time paused_until;      // busy, or without an average just now; unset: not
    int empty = 0;          // how often it had none, in a row
  };

  void OnManifest(Time now, const PeerId& from, const ManifestReply& reply, FetchActions& out);
  void OnChunk(Time now, const PeerId& from, const ChunkReply& reply, const Payload& payload,
               FetchActions& out);
  void TakeChunk(Donor& donor, uint32_t chunk, const Payload& payload, FetchActions& out);
  void TakeOpaque(Donor& donor, uint32_t chunk, uint64_t bytes, FetchActions& out);
  void OnRefused(Time now, const PeerId& from, const ChunkReply& reply, FetchActions& out);
  bool Acceptable(const StateManifest& manifest) const;
  bool Serves(const Donor& donor) const;  // has the average that is being fetched
  void Retarget();  // chooses the average to fetch when nobody serves the old one
  void MoveTo(const StateManifest& manifest, const Digest& root);
  // What is there and stays there when `next` takes the target's place, by its chunks.
  std::vector<bool> KeptFor(const StateManifest& next);
  void NoteProgress(Time now);
  void PutBack(const Ask& ask);  // its chunk is to be asked for again
  void Fail(Donor& donor);
  // The fetch ends: donors serve a few joiners at a time, and others wait for our place.
  void End(FetchActions& out);
  void ForgetOpaque();  // begins it anew at another donor
  void AskManifest(Time now, const PeerId& peer, Donor& donor, FetchActions& out);
  // Asks for as much as the windows allow, then ends the fetch if everything is there, or cannot
  // be.
  void Proceed(Time now, FetchActions& out);
  bool AskOne(Time now, const PeerId& peer, Donor& donor, FetchActions& out);
  std::optional<uint32_t> HedgeFor(const Donor& donor) const;
  void ChooseOpaqueDonor();
  bool OpaqueSettled(Time now) const;
  Time AnswerBy(const Donor& donor, Time asked) const;
  Duration HedgeAfter() const;

  const StateFetchOptions options_;
  Time progress_at_;      // when there was more of it than ever before
  size_t most_kept_ = 0;  // chunks
  size_t moves_ = 0;      // to newer averages
  bool mixed_ = false;    // some that are kept are of another average than the target
  std::map<PeerId, Donor> donors_;
  std::optional<StateManifest> target_;
  Digest target_root_;
  std::vector<bool> have_;      // by chunk of the target
  std::vector<uint8_t> asked_;  // open requests by chunk
  std::set<uint32_t> todo_;     // chunks neither had nor asked for
  size_t kept_ = 0;
  Time whole_at_;                       // when the last chunk came; unset: not yet
  Time alone_since_;                    // when the last living donor failed; unset: there is one
  std::vector<Duration> answer_times_;  // the last kTimes, unordered
  size_t answers_ = 0;
  std::optional<PeerId> opaque_donor_;
  OpaqueState opaque_;
  std::set<uint32_t> opaque_todo_;
  size_t opaque_missing_ = 0;
  bool opaque_done_ = false;
  bool finished_ = false;

  Counter& chunks_kept_;
  Counter& chunks_bad_;
  Counter& chunks_unasked_;
  Counter& hedges_;
  Counter& donors_failed_;
  Counter& donors_refused_;
  Counter& retargets_;
};

}  // namespace crowdsurf::worker
