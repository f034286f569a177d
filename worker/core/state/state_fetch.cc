#include "worker/core/state/state_fetch.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kTimes = 32;  // answer times remembered for the hedge's median

Counter& DonorCounter(MetricRegistry& metrics, const char* why) {
  return metrics.AddCounter("crowdsurf_state_donors_lost_total",
                            "Donors of state that were given up or never taken.",
                            {{"reason", why}});
}
Counter& ChunkCounter(MetricRegistry& metrics, const char* result) {
  return metrics.AddCounter("crowdsurf_state_chunks_fetched_total",
                            "Chunks of state that arrived, by what came of them.",
                            {{"result", result}});
}

}  // namespace

StateFetch::StateFetch(Time now, StateFetchOptions options, MetricRegistry& metrics)
    : options_(options),
      progress_at_(now),
      chunks_kept_(ChunkCounter(metrics, "kept")),
      chunks_bad_(ChunkCounter(metrics, "bad")),
      chunks_unasked_(ChunkCounter(metrics, "unasked")),
      hedges_(metrics.AddCounter("crowdsurf_state_hedges_total",
                                 "Chunks asked of a second donor because the first was slow.")),
      donors_failed_(DonorCounter(metrics, "failed")),
      donors_refused_(DonorCounter(metrics, "too_many")),
      retargets_(metrics.AddCounter("crowdsurf_state_retargets_total",
                                    "Moves of a fetch to a newer average.")) {}

void StateFetch::OnDonor(Time now, const PeerId& peer, FetchActions& out) {
  if (finished_ || donors_.contains(peer)) return;
  if (donors_.size() >= options_.max_donors) {
    donors_refused_.Add();
    return;
  }
  // A new donor: the clock for having none stops.
  alone_since_ = Time();
  AskManifest(now, peer, donors_[peer], out);
}

void StateFetch::OnReply(Time now, const PeerId& from, const StateMessage& message,
                         const Payload& payload, FetchActions& out) {
  if (finished_) return;
  if (const auto* m = std::get_if<ManifestReply>(&message)) {
    OnManifest(now, from, *m, out);
  } else if (const auto* c = std::get_if<ChunkReply>(&message)) {
    OnChunk(now, from, *c, payload, out);
  }
}

bool StateFetch::Acceptable(const StateManifest& m) const {
  // Twice as many: the average and its velocity (docs/outer-optimizer.md).
  const bool fits = m.elements == options_.elements || m.elements == 2 * options_.elements;
  return m.schema == options_.schema && fits &&
         (options_.averaging.is_zero() || m.averaging == options_.averaging) &&
         (options_.committed.none() || m.committed == options_.committed);
}

void StateFetch::OnManifest(Time now, const PeerId& from, const ManifestReply& reply,
                            FetchActions& out) {
  const auto it = donors_.find(from);
  if (it == donors_.end() || it->second.failed || it->second.manifest_asked.unset()) {
    chunks_unasked_.Add();
    return;
  }
  Donor& donor = it->second;
  donor.manifest_asked = Time();
  donor.heard = now;
  donor.gave = 0;
  // Busy is no failure: it is asked anew after the pause (OnTimer).
  const bool empty = reply.refusal == StateRefusal::kNothing && options_.averaging.is_zero();
  donor.empty = empty ? donor.empty + 1 : 0;
  if (reply.refusal == StateRefusal::kBusy || (empty && donor.empty <= options_.most_empty)) {
    donor.paused_until = now + options_.busy_pause;
  } else if (reply.refusal != StateRefusal::kNone || !Acceptable(reply.manifest)) {
    Fail(donor);  // it holds another schema, size or average
  } else {
    donor.manifest = reply.manifest;
    donor.root = reply.manifest.Root();
    donor.opaque = reply.opaque;
  }
  Proceed(now, out);
}

bool StateFetch::Serves(const Donor& donor) const {
  return !donor.failed && donor.manifest && target_ && donor.root == target_root_;
}

void StateFetch::Retarget() {
  // The vote is per content: the newest average; of two with one number, the one more donors hold.
  std::map<Digest, std::pair<AveragingId, size_t>> offers;
  std::map<Digest, const StateManifest*> manifests;
  for (const auto& [peer, donor] : donors_) {
    if (Serves(donor)) return;  // the old one is still to be had: finishing it is the quickest
    if (donor.failed || !donor.manifest) continue;
    auto& offer = offers[donor.root];
    offer = {donor.manifest->averaging, offer.second + 1};
    manifests[donor.root] = &*donor.manifest;
  }
  if (offers.empty()) return;
  // Complete: only the opaque state is missing, and any will do.
  if (target_ && kept_ == target_->chunks() && !options_.exact_opaque) return;
  const auto best =
      std::max_element(offers.begin(), offers.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  MoveTo(*manifests.at(best->first), best->first);
}

std::vector<bool> StateFetch::KeptFor(const StateManifest& next) {
  std::vector<bool> keep(next.chunks(), false);
  // Only chunks of the same places and the same key can be compared.
  const bool comparable = target_->chunk_bytes == next.chunk_bytes &&
                          target_->parts == next.parts && target_->hash_key == next.hash_key;
  // Two workers' own first parameters have no value between them, and averages of no samples are
  // such.
  const bool mixes = options_.mix && target_->job_samples > 0 && next.job_samples > 0;
  size_t from = 0;  // the target's chunk in which the next one's begins
  for (size_t i = 0; i < keep.size(); ++i) {
    if (comparable) keep[i] = have_[i] && target_->chunk_hashes[i] == next.chunk_hashes[i];
    if (keep[i] || !mixes) continue;
    const StateManifest::Bounds bounds = next.BoundsOf(i);
    while (from < have_.size() && target_->BoundsOf(from).end <= bounds.begin) ++from;
    uint64_t reached = bounds.begin;
    for (size_t at = from; at < have_.size() && have_[at] && reached < bounds.end; ++at)
      reached = target_->BoundsOf(at).end;
    keep[i] = reached >= bounds.end;
    mixed_ |= keep[i];
  }
  return keep;
}

void StateFetch::MoveTo(const StateManifest& manifest, const Digest& root) {
  std::vector<bool> keep(manifest.chunks(), false);
  if (target_) {
    retargets_.Add();
    ++moves_;
    keep = KeptFor(manifest);
  }
  if (options_.exact_opaque && opaque_donor_) {
    ForgetOpaque();
    opaque_done_ = false;
  }
  // Answers to asks for the old content are not wanted any more.
  for (auto& [peer, donor] : donors_)
    std::erase_if(donor.open, [](const Ask& a) { return !a.opaque; });
  target_ = manifest;
  target_root_ = root;
  have_ = std::move(keep);
  asked_.assign(manifest.chunks(), 0);
  kept_ = 0;
  todo_.clear();
  for (uint32_t i = 0; i < have_.size(); ++i) {
    if (have_[i]) ++kept_;
    if (!have_[i]) todo_.insert(todo_.end(), i);
  }
}

void StateFetch::OnChunk(Time now, const PeerId& from, const ChunkReply& reply,
                         const Payload& payload, FetchActions& out) {
  const auto it = donors_.find(from);
  if (it == donors_.end() || it->second.failed) {
    chunks_unasked_.Add();
    return;
  }
  Donor& donor = it->second;
  const Digest& expected = reply.opaque ? opaque_.hash : target_root_;
  const auto ask = std::find_if(donor.open.begin(), donor.open.end(), [&](const Ask& a) {
    return a.opaque == reply.opaque && a.chunk == reply.chunk;
  });
  // Unasked, or of content that the fetch has moved away from (MoveTo).
  if (ask == donor.open.end() || reply.root != expected) {
    chunks_unasked_.Add();
    return;
  }
  const Ask answered = *ask;
  donor.open.erase(ask);
  donor.heard = now;
  if (reply.refusal != StateRefusal::kNone) {
    PutBack(answered);
    return OnRefused(now, from, reply, out);
  }
  // A ring of the latest answers, for HedgeAfter.
  if (answer_times_.size() < kTimes) answer_times_.emplace_back();
  answer_times_[answers_++ % kTimes] = now - answered.at;
  ++donor.gave;
  if (reply.opaque) {
    progress_at_ = now;
    TakeOpaque(donor, reply.chunk, payload.bytes, out);
  } else {
    TakeChunk(donor, reply.chunk, payload, out);
    NoteProgress(now);
  }
  Proceed(now, out);
}

// A fetch that begins anew again and again makes none.
void StateFetch::NoteProgress(Time now) {
  if (kept_ <= most_kept_) return;
  most_kept_ = kept_;
  progress_at_ = now;
}

void StateFetch::TakeChunk(Donor& donor, uint32_t chunk, const Payload& payload,
                           FetchActions& out) {
  --asked_[chunk];
  if (have_[chunk]) return;  // the hedge was quicker
  const StateManifest::Bounds bounds = target_->BoundsOf(chunk);
  if (payload.bytes != bounds.size() || payload.hash != target_->chunk_hashes[chunk]) {
    chunks_bad_.Add();
    if (asked_[chunk] == 0) todo_.insert(chunk);
    return Fail(donor);  // it sends what it did not promise
  }
  have_[chunk] = true;
  ++kept_;
  chunks_kept_.Add();
  out.push_back(KeepChunk{chunk, bounds.begin});
}

void StateFetch::TakeOpaque(Donor& donor, uint32_t chunk, uint64_t bytes, FetchActions& out) {
  const uint64_t offset = chunk * static_cast<uint64_t>(kStateChunkBytes);
  // Only the size is checked: the hash is of the whole, and verified when the last chunk is here.
  if (bytes != std::min<uint64_t>(kStateChunkBytes, opaque_.bytes - offset)) {
    chunks_bad_.Add();
    return Fail(donor);
  }
  out.push_back(KeepOpaque{offset, opaque_.bytes});
  if (--opaque_missing_ == 0) out.push_back(VerifyOpaque{opaque_.hash});
}

void StateFetch::OnRefused(Time now, const PeerId& from, const ChunkReply& reply,
                           FetchActions& out) {
  Donor& donor = donors_.at(from);
  const bool gone = reply.refusal != StateRefusal::kBusy;
  // A pause, so that a donor that says one thing and does another costs little. One that gave
  // chunks of what it has said has only gone on.
  const bool went_on = gone && donor.gave > 0;
  if (!went_on) donor.paused_until = now + options_.busy_pause;
  if (gone) {
    // It holds something else by now: it is asked what.
    if (reply.opaque && opaque_donor_ == from && opaque_missing_ > 0) ForgetOpaque();
    for (const Ask& ask : donor.open) {
      if (!ask.opaque) PutBack(ask);
    }
    std::erase_if(donor.open, [](const Ask& a) { return !a.opaque; });
    donor.manifest.reset();
    if (went_on && donor.manifest_asked.unset()) AskManifest(now, from, donor, out);
  }
  Proceed(now, out);
}

void StateFetch::PutBack(const Ask& ask) {
  if (ask.opaque) {
    // Without a donor the whole opaque state is asked for anew (ChooseOpaqueDonor).
    if (opaque_donor_) opaque_todo_.insert(ask.chunk);
  } else if (--asked_[ask.chunk] == 0 && !have_[ask.chunk]) {
    todo_.insert(ask.chunk);
  }
}

void StateFetch::ForgetOpaque() {
  const auto it = donors_.find(*opaque_donor_);
  std::erase_if(it->second.open, [](const Ask& a) { return a.opaque; });
  opaque_donor_.reset();
  opaque_ = {};
  opaque_todo_.clear();
  opaque_missing_ = 0;
}

void StateFetch::Fail(Donor& donor) {
  if (donor.failed) return;
  donors_failed_.Add();
  // For the rest of this fetch: OnDonor leaves known donors as they are.
  donor.failed = true;
  donor.manifest_asked = donor.paused_until = Time();
  donor.manifest.reset();
  // The opaque state comes from one donor: without it the part that is here is worth nothing.
  // Once it is all here only its hash decides.
  const bool its_part = opaque_donor_ && &donors_.at(*opaque_donor_) == &donor;
  if (its_part && opaque_missing_ > 0) ForgetOpaque();
  for (const Ask& ask : donor.open) PutBack(ask);
  donor.open.clear();
}

void StateFetch::OnDonorFailed(Time now, const PeerId& peer, FetchActions& out) {
  const auto it = donors_.find(peer);
  if (finished_ || it == donors_.end()) return;
  Fail(it->second);
  Proceed(now, out);
}

void StateFetch::OnOpaqueVerified(Time now, FetchActions& out) {
  if (finished_ || !opaque_donor_) return;
  opaque_done_ = true;
  Proceed(now, out);
}

void StateFetch::OnOpaqueCorrupt(Time now, FetchActions& out) {
  if (finished_ || !opaque_donor_) return;
  chunks_bad_.Add();
  donors_.at(*opaque_donor_).bad_opaque = true;
  ForgetOpaque();
  Proceed(now, out);
}

}  // namespace crowdsurf::worker
