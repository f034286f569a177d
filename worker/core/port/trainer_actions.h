// The actions of a peer that concern its trainer: what the host tells it, and asks of it.
//
// Plain values, alternatives of Action (actions.h).
#pragma once

#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/id.h"
#include "worker/core/shard/lease.h"
#include "worker/core/subnet/unit_schema.h"
#include "worker/core/vector/mix.h"
#include "worker/core/vector/result_hashes.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

struct RequestPublish {
  AveragingId averaging = {};
};
// Wake me with Progress when the trainer's totals pass either mark (0: never). Replaces the last.
struct WakeAt {
  uint64_t steps;
  double samples;
};
// Gradients are averaged: the trainer gathers so many samples of each step, and waits.
struct TellShare {
  uint64_t samples = 0;
};
struct LetStart {};  // the held trainer starts from its own first parameters
// What a committed average is made of, beside its region.
// kTrainersStep: gradients are averaged. The region of a Deliver has the mean gradient; the trainer
// makes the step, and its parameters in kInboxA are the average.
enum class StateParts : uint8_t { kAverage, kAverageAndVelocity, kTrainersStep };
// The averaging is complete in `region`; the trainer gets region - outbox; the outbox is free once
// that is applied. The host answers with StateHashed when it has hashed the state, or could not
// (then without a root). A velocity that is no part of it is void.
struct Deliver {
  AveragingId averaging = {};
  Region region;
  double samples;      // in this averaging, job-wide
  double job_samples;  // in all up to now
  Digest root;         // of the last round's value: equal within its group
  StateParts parts = StateParts::kAverage;
  Bytes ledger =
      {};  // of the leases with this averaging, for a checkpoint; empty: none, or not known
  // Of the values in the region, unless a result there says what nobody covers; nullptr: the host
  // has to hash them.
  std::shared_ptr<const ResultHashes> hashes = nullptr;
};
// This peer had missed `averaging`: the base in kInboxA, with its velocity, is that averaging's by
// now. The trainer gets region - outbox, as much as the base has moved, and keeps what it has
// trained itself. `averaging` is also the RequestPublish's. Answered as Deliver is.
struct MoveTrainer {
  AveragingId averaging = {};
  Region region;
  double job_samples;  // in all up to there
  StateParts parts = StateParts::kAverage;
};
struct ReleaseOutbox {
  AveragingId averaging = {};
};
// kInboxA holds a state that others may fetch by this number, and that is no news to the trainer.
// Answered as Deliver is.
struct OfferState {
  AveragingId averaging = {};
};
struct DeliverMix {         // the trainer adds region - outbox
  AveragingId number = {};  // of the RequestPublish
  Region region = Region::kInboxA;
};
struct TellLrScale {
  double scale = 1;  // the trainer multiplies its learning rate by it
};
// The trainer trains these units from the next result on; none: the whole model. A snapshot says
// `by` of the units that it was trained on.
struct TellTrainerUnits {
  AveragingId by = {};
  IndexSets sets;
};
struct JobCounted {  // an averaging that counts samples and moves no parameters is over
  AveragingId averaging = {};
  double job_samples = 0;
  Bytes ledger = {};  // as in Deliver
};
struct GrantLeases {  // tell the trainer
  LeasesGranted granted;
};

}  // namespace crowdsurf::worker
