// ActionHost: the committed average, and how it is given to others and taken from them.
#include <utility>

#include "base/digest.h"
#include "simulator/host/action_host.h"
#include "worker/core/state/state_fetch.h"

namespace crowdsurf::simulator {

using worker::Region;

namespace {

template <class Scalar>
ByteView BytesOf(const Buffer<Scalar>& region) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(region.values.data());
  return {bytes, region.values.size() * sizeof(Scalar)};
}

}  // namespace

template <class Scalar>
void ActionHost<Scalar>::Act(const worker::Deliver& action) {
  if (action.parts == worker::StateParts::kTrainersStep) {
    Overwrite(Region::kInboxA);
    return GiveResult(action.averaging, action.region);
  }
  if (action.parts == worker::StateParts::kAverage)
    At(Region::kVelocity).Resize(setup_.elements);  // void: zeros, until it is used again
  Offer({action.averaging, {}, action.region, action.parts, action.job_samples},
        action.hashes.get());
  GiveResult(action.averaging, action.region);
}

template <class Scalar>
void ActionHost<Scalar>::Act(const worker::MoveTrainer& action) {
  Offer({action.averaging, {}, Region::kInboxA, action.parts, action.job_samples});
  GiveResult(action.averaging, action.region);
}

template <class Scalar>
void ActionHost<Scalar>::StepTaken(worker::AveragingId averaging) {
  Overwrite(Region::kInboxA);
  Offer({averaging, {}, Region::kInboxA, worker::StateParts::kTrainersStep});
}

// A region that is written again before it is hashed has nothing to offer. Where the round says
// what lies there, nothing is hashed (worker/edge/agent/agent_actions.cc).
template <class Scalar>
void ActionHost<Scalar>::Offer(const Donation& offer, const worker::ResultHashes* hashes) {
  donation_.reset();
  ByteWriter content;
  if (hashes != nullptr) {
    content.U64(hashes->key);
    for (const uint64_t hash : hashes->of_chunk) content.U64(hash);
  } else {
    content.Raw(BytesOf(At(offer.region)));
    if (offer.parts == worker::StateParts::kAverageAndVelocity)
      content.Raw(BytesOf(At(Region::kVelocity)));
  }
  Donation described = offer;
  described.root = Sha256(content.bytes());
  DoAfter(hashes != nullptr ? Duration() : kHashTime,
          [this, described, writes = writes_[offer.region]] {
            if (writes_[described.region] != writes) return;
            donation_ = described;
            Local(worker::StateHashed{described.averaging, described.root});
          });
}

template <class Scalar>
HeldValues<Scalar> ActionHost<Scalar>::Serves(worker::AveragingId averaging,
                                              const Digest& root) const {
  if (!donation_ || donation_->averaging != averaging || donation_->root != root) return {};
  return Newest();
}

template <class Scalar>
HeldValues<Scalar> ActionHost<Scalar>::Newest() const {
  if (!alive() || frozen() || !donation_) return {};
  const bool velocity = donation_->parts == worker::StateParts::kAverageAndVelocity;
  return {.average = &regions_.At(donation_->region),
          .velocity = velocity ? &regions_.At(Region::kVelocity) : nullptr,
          .job_samples = donation_->job_samples,
          .averaging = donation_->averaging,
          .root = donation_->root};
}

template <class Scalar>
void ActionHost<Scalar>::FetchAfter(Duration delay, const worker::FetchState& fetch, int tries) {
  // A later fetch takes the place of one under way.
  const uint64_t serial = tries == 1 ? ++fetch_serial_ : fetch_serial_;
  DoAfter(delay, [this, fetch, tries, serial] {
    if (serial == fetch_serial_) FinishFetch(fetch, tries);
  });
}

template <class Scalar>
void ActionHost<Scalar>::FinishFetch(const worker::FetchState& fetch, int tries) {
  if (!fetch.donors.empty() && setup_.times.fetch_parts > 1) {
    coming_ = {.fetch = fetch, .average = {}, .velocity = {}};
    return FetchPart();
  }
  // Without donors the average lies there already: a checkpoint's.
  HeldValues<Scalar> found{&At(fetch.region), &At(Region::kVelocity)};
  if (!fetch.donors.empty()) found = outside_.FindState(index(), fetch);
  if (found.average == nullptr) {
    if (tries < setup_.times.fetch_tries)
      // Each try comes after twice the time of the last.
      return FetchAfter(setup_.times.fetch * (1 << tries), fetch, tries + 1);
    return Local(worker::StateFetched{fetch.averaging, fetch.root, false});
  }
  TakeFetched(fetch, found);
}

// Whether the parts of one state may be of several averages.
template <class Scalar>
bool ActionHost<Scalar>::Mixes() const {
  return coming_.fetch.adopt && !worker::AveragesGradients(setup_.config.averaging);
}

// As StateFetch: what a trainer adopts may be of several averages, but not of none.
template <class Scalar>
HeldValues<Scalar> ActionHost<Scalar>::FindPart() {
  const HeldValues<Scalar> same = outside_.FindState(index(), coming_.fetch);
  if (same.average != nullptr) coming_.job_samples = same.job_samples;
  if (same.average != nullptr || !Mixes()) return same;
  const HeldValues<Scalar> newer = outside_.FindNewest(index(), coming_.fetch);
  if (newer.average == nullptr || newer.averaging < coming_.fetch.averaging) return {};
  if (coming_.job_samples == 0 || newer.job_samples == 0) {
    coming_.part = 0;
    coming_.mixed = false;
  }
  coming_.mixed |= coming_.part > 0;
  coming_.fetch.averaging = newer.averaging;
  coming_.fetch.root = newer.root;
  coming_.job_samples = newer.job_samples;
  return newer;
}

template <class Scalar>
void ActionHost<Scalar>::FetchPart() {
  const auto go_on_after = [this](Duration pause) {
    DoAfter(pause, [this, serial = fetch_serial_] {
      if (serial == fetch_serial_) FetchPart();
    });
  };
  const HeldValues<Scalar> found = FindPart();
  if (found.average == nullptr) {
    // As StateFetch: between two averagings its donors have something to give again.
    const worker::StateFetchOptions agents;
    if (Mixes() && ++coming_.empty <= agents.most_empty) return go_on_after(agents.busy_pause);
    return Local(worker::StateFetched{coming_.fetch.averaging, coming_.fetch.root, false});
  }
  coming_.empty = 0;
  const size_t parts = setup_.times.fetch_parts, elements = setup_.elements;
  if (coming_.average.values.size() != elements) {
    coming_.average.Resize(elements);
    coming_.velocity.Resize(elements);
  }
  const size_t begin = elements * coming_.part / parts;
  const size_t end = elements * ++coming_.part / parts;
  for (size_t e = begin; e < end; ++e) {
    coming_.average.values[e] = found.average->values[e];
    coming_.average.origins[e] = found.average->origins[e];
    coming_.velocity.values[e] = found.velocity == nullptr ? 0 : found.velocity->values[e];
  }
  if (coming_.part < parts) return go_on_after(setup_.times.fetch);
  TakeFetched(coming_.fetch, {.average = &coming_.average,
                              .velocity = found.velocity == nullptr ? nullptr : &coming_.velocity,
                              .mixed = coming_.mixed,
                              .job_samples = coming_.job_samples});
}

template <class Scalar>
void ActionHost<Scalar>::TakeFetched(const worker::FetchState& fetch,
                                     const HeldValues<Scalar>& found) {
  At(fetch.region) = *found.average;
  if (found.velocity == nullptr)
    At(Region::kVelocity).Resize(setup_.elements);
  else
    At(Region::kVelocity) = *found.velocity;
  Overwrite(fetch.region);
  // What was fetched is served on, under the root that it was asked for by.
  if (!found.mixed)
    donation_ = Donation{fetch.averaging, fetch.root, fetch.region,
                         found.velocity == nullptr ? worker::StateParts::kAverage
                                                   : worker::StateParts::kAverageAndVelocity,
                         found.job_samples};
  if (fetch.adopt) {
    adopted_ = fetch.averaging;
    AdoptState(fetch.region);
    StartTrainer();
  }
  Local(worker::StateFetched{.averaging = fetch.averaging,
                             .root = found.mixed ? Digest() : fetch.root,
                             .ok = true,
                             .job_samples = found.job_samples,
                             .mixed = found.mixed});
  // The trainer has left its parameters where the base lies.
  if (fetch.region == Region::kInboxB && worker::AveragesGradients(setup_.config.averaging)) {
    At(Region::kInboxA) = At(Region::kInboxB);
    StepTaken(fetch.averaging);
  }
}

// The class is instantiated beside its other members (action_host.cc).
#define CROWDSURF_INSTANTIATE(Scalar)                                                        \
  template void ActionHost<Scalar>::Act(const worker::Deliver&);                             \
  template void ActionHost<Scalar>::Act(const worker::MoveTrainer&);                         \
  template void ActionHost<Scalar>::StepTaken(worker::AveragingId);                          \
  template void ActionHost<Scalar>::Offer(const Donation&, const worker::ResultHashes*);     \
  template HeldValues<Scalar> ActionHost<Scalar>::Serves(worker::AveragingId, const Digest&) \
      const;                                                                                 \
  template HeldValues<Scalar> ActionHost<Scalar>::Newest() const;                            \
  template void ActionHost<Scalar>::FetchAfter(Duration, const worker::FetchState&, int);    \
  template void ActionHost<Scalar>::FinishFetch(const worker::FetchState&, int)
CROWDSURF_INSTANTIATE(float);
CROWDSURF_INSTANTIATE(double);
#undef CROWDSURF_INSTANTIATE

}  // namespace crowdsurf::simulator
