#include "worker/core/state/state_donor.h"

#include <algorithm>

namespace crowdsurf::worker {
namespace {

Counter& RefusedFor(MetricRegistry& metrics, const char* reason) {
  return metrics.AddCounter("crowdsurf_state_requests_refused_total",
                            "Requests of joiners that were refused.", {{"reason", reason}});
}

}  // namespace

StateDonor::StateDonor(StateDonorOptions options, MetricRegistry& metrics)
    : options_(options),
      chunks_(metrics.AddCounter("crowdsurf_state_chunks_served_total",
                                 "Chunks of state handed to joiners.")),
      refused_busy_(RefusedFor(metrics, "busy")),
      refused_gone_(RefusedFor(metrics, "gone")),
      refused_garbled_(RefusedFor(metrics, "garbled")) {}

void StateDonor::Offer(int inbox, StateManifest manifest) {
  const Digest root = manifest.Root();
  offered_[inbox] = {std::move(manifest), root};
  opaque_behind_ = true;
}

bool StateDonor::SetOpaque(Time now, OpaqueState opaque, AveragingId step) {
  if (IsRead(now)) return false;
  opaque_ = opaque;
  opaque_step_ = step;
  opaque_at_ = now;
  opaque_behind_ = false;
  for (auto& [peer, joiner] : joiners_) joiner.read_opaque = Time();
  return true;
}

void StateDonor::OnOpaqueMissed(Time now) {
  opaque_at_ = now;
  opaque_behind_ = false;
}

void StateDonor::Retire(int inbox) { offered_.erase(inbox); }

bool StateDonor::holds(AveragingId averaging) const {
  return std::any_of(offered_.begin(), offered_.end(),
                     [&](const auto& o) { return o.second.manifest.averaging == averaging; });
}

const StateDonor::Offered* StateDonor::Newest() const {
  const Offered* best = nullptr;
  for (const auto& [inbox, offered] : offered_)
    if (best == nullptr || offered.manifest.averaging > best->manifest.averaging) best = &offered;
  return best;
}

bool StateDonor::IsRead(Time now) const {
  // Of a step of gradients: nobody reads one of an earlier step.
  if (exact_ || opaque_at_.unset() || now - opaque_at_ > options_.opaque_kept) return false;
  return std::any_of(joiners_.begin(), joiners_.end(), [&](const auto& joiner) {
    const Time read = joiner.second.read_opaque;
    return !read.unset() && now - read <= options_.silence;
  });
}

bool StateDonor::WantsOpaque(Time now) const {
  if (exact_) {
    const Offered* newest = Newest();
    return newest != nullptr && newest->manifest.averaging != opaque_step_;
  }
  if (opaque_at_.unset()) return true;
  if (IsRead(now)) return false;
  if (now - opaque_at_ > options_.opaque_fresh) return true;
  // Else two joiners would take the state away from each other, where averagings are quick.
  return opaque_behind_ && joiners_.empty();
}

StateDonor::Joiner* StateDonor::Admit(Time now, const PeerId& from) {
  auto it = joiners_.find(from);
  if (it == joiners_.end()) {
    // Places of silent joiners are freed when somebody needs one.
    std::erase_if(joiners_, [&](const auto& j) { return now - j.second.heard > options_.silence; });
    if (joiners_.size() >= options_.max_joiners) return nullptr;
    it = joiners_.emplace(from, Joiner{}).first;
  }
  it->second.heard = now;
  return &it->second;
}

std::optional<SendState> StateDonor::OnMessage(Time now, const PeerId& from,
                                               const StateMessage& message) {
  if (const auto* m = std::get_if<ManifestRequest>(&message)) return AnswerManifest(now, from, *m);
  if (const auto* c = std::get_if<ChunkRequest>(&message)) return AnswerChunk(now, from, *c);
  refused_garbled_.Add();
  return std::nullopt;
}

SendState StateDonor::AnswerManifest(Time now, const PeerId& from, const ManifestRequest& request) {
  const Offered* best = nullptr;
  for (const auto& [inbox, offered] : offered_) {
    const AveragingId number = offered.manifest.averaging;
    // Zero asks for the newest.
    if (!request.averaging.is_zero() && number != request.averaging) continue;
    if (best == nullptr || number > best->manifest.averaging) best = &offered;
  }
  ManifestReply reply;
  // Who cannot be served takes no place of a joiner.
  if (best == nullptr) {
    refused_gone_.Add();
    reply.refusal = StateRefusal::kNothing;
  } else if ((exact_ && best->manifest.averaging != opaque_step_) || Admit(now, from) == nullptr) {
    refused_busy_.Add();
    reply.refusal = StateRefusal::kBusy;
  } else {
    reply.manifest = best->manifest;
    reply.opaque = opaque_;
  }
  return {from, std::move(reply), 0, 0, 0};
}

SendState StateDonor::AnswerChunk(Time now, const PeerId& from, const ChunkRequest& request) {
  ChunkReply reply{request.root, request.opaque, request.chunk, StateRefusal::kNone};
  SendState send{from, reply, 0, 0, 0};
  const auto refuse = [&](StateRefusal why, Counter& counter) {
    counter.Add();
    reply.refusal = why;
    send.message = reply;
    return send;
  };
  if (request.opaque) {
    const uint64_t offset = request.chunk * static_cast<uint64_t>(kStateChunkBytes);
    // An opaque state is named by the hash of its bytes.
    if (opaque_.hash != request.root || offset >= opaque_.bytes) {
      return refuse(StateRefusal::kGone, refused_gone_);
    }
    send.inbox = -1;
    send.offset = offset;
    send.bytes =
        static_cast<uint32_t>(std::min<uint64_t>(kStateChunkBytes, opaque_.bytes - offset));
  } else {
    const auto it = std::find_if(offered_.begin(), offered_.end(),
                                 [&](const auto& o) { return o.second.root == request.root; });
    if (it == offered_.end() || request.chunk >= it->second.manifest.chunks()) {
      return refuse(StateRefusal::kGone, refused_gone_);
    }
    send.inbox = it->first;
    const StateManifest::Bounds bounds = it->second.manifest.BoundsOf(request.chunk);
    send.offset = bounds.begin;
    send.bytes = static_cast<uint32_t>(bounds.size());
  }
  Joiner* const joiner = Admit(now, from);
  // A window each, so that one joiner does not take all of the link.
  if (joiner == nullptr || joiner->sending >= options_.max_window) {
    return refuse(StateRefusal::kBusy, refused_busy_);
  }
  if (request.opaque) joiner->read_opaque = now;
  ++joiner->sending;
  chunks_.Add();
  return send;
}

void StateDonor::OnSent(const PeerId& to) {
  const auto it = joiners_.find(to);
  if (it != joiners_.end() && it->second.sending > 0) --it->second.sending;
}

}  // namespace crowdsurf::worker
