#include "tests/contract/world/reduce_core.h"

#include <utility>

#include "base/digest.h"
#include "tests/contract/world/allocation_watch.h"
#include "worker/core/port/messages.h"

namespace crowdsurf::worker {

ReduceCore::ReduceCore(PeerConfig config, std::unique_ptr<Strategy> strategy, uint64_t elements,
                       const UnitSchema& units)
    : config_(std::move(config)),
      rounds_(config_, metrics_, Logger()),
      strategy_(std::move(strategy)),
      elements_(elements) {
  strategy_->SetUnits(units, static_cast<uint32_t>(config_.chunk_elements));
  rounds_.SetVector({.schema = Sha256(AsBytes("table")), .elements = elements});
}

void ReduceCore::EnterView(Time now, const Seating& seating, Actions& out) {
  const AllocationWatch watch;
  seating_ = seating;
  rounds_.OnView(now, seating.view(), seating.hash(), ParentEnd::kOrderly, out);
  StrategyActions none;
  strategy_->OnView(now, seating.view(), config_.id, none);
}

// What Averaging does with what the strategy asks for (averaging_rounds.cc).
void ReduceCore::Tell(Time now, const Event& event, Actions& out) {
  StrategyActions actions;
  strategy_->OnEvent(now, event, actions);
  for (const StrategyAction& action : actions) {
    if (const auto* open = std::get_if<OpenRound>(&action)) {
      OpenOne(now, *open, out);
    } else if (const auto* units = std::get_if<TellUnits>(&action)) {
      out.push_back(TellTrainerUnits{units->by, units->sets});
    } else if (const auto* result = std::get_if<DeliverResult>(&action)) {
      const bool base = strategy_->needs().unit_groups;
      if (base)
        out.push_back(RunKernel{
            MixKernel::kOuterBegin, {0, elements_}, {Region::kInboxA, result->region}, {}});
      out.push_back(Deliver{.averaging = result->averaging,
                            .region = base ? Region::kInboxA : result->region,
                            .samples = result->weight,
                            .job_samples = result->weight,
                            .root = Digest()});
    } else if (const auto* lost = std::get_if<AbandonAveraging>(&action)) {
      out.push_back(ReleaseOutbox{lost->averaging});
    }
  }
}

void ReduceCore::OpenOne(Time now, const OpenRound& open, Actions& out) {
  GroupRounds::Opening opening;
  opening.averaging = open.averaging;
  opening.axis = open.axis;
  opening.from = open.from;
  opening.to = open.to;
  opening.stake = {.weight = open.weight, .samples = open.weight, .before = {}};
  opening.mask = open.mask;
  opening.subnet = open.subnet;
  rounds_.OpenRound(now, opening, seating_, down_, out);
}

void ReduceCore::CollectEnded(Time now, Actions& out) {
  for (const GroupRounds::Ended& ended : rounds_.TakeEnded())
    Tell(now,
         RoundDecided{ended.averaging, ended.axis, Applied(ended.over.outcome),
                      ended.over.stake.weight, ended.over.contributors},
         out);
}

void ReduceCore::OnMessage(Time now, const PeerId& from, ByteView body, Actions& out) {
  const auto message = DecodeMessage(body);
  const auto* frame = std::get_if<message::RoundFrame>(&*message);
  if (frame == nullptr) return;  // lists of seats: they do not differ here
  const AllocationWatch watch;
  rounds_.OnFrame(now, from, *frame, out);
  CollectEnded(now, out);
}

void ReduceCore::OnPeerDown(Time now, const PeerId& peer, DownEvidence, Actions& out) {
  const AllocationWatch watch;
  down_.insert(peer);
  rounds_.OnPeerDown(now, peer, SuspicionCause::kReset, out);
  CollectEnded(now, out);
}

void ReduceCore::OnLocal(Time now, const LocalEvent& event, Actions& out) {
  const auto* published = std::get_if<Published>(&event);
  if (published == nullptr) return;
  const AllocationWatch watch;
  rounds_.SetMin(published->averaging);
  Tell(now, PublishedEvent{published->averaging, published->samples, published->units}, out);
  CollectEnded(now, out);
}

void ReduceCore::OnTimer(Time now, Actions& out) {
  const AllocationWatch watch;
  rounds_.OnTimer(now, out);
  CollectEnded(now, out);
}

bool ReduceCore::OnChunk(Time now, const ChunkArrived& chunk, Actions& out) {
  const AllocationWatch watch;
  if (!chunk.finite) ++bad_inputs_;
  const bool keep = rounds_.OnChunk(now, chunk, out);
  CollectEnded(now, out);
  return keep;
}

void ReduceCore::OnFolded(Time now, const FoldedChunk& chunk, Actions& out) {
  const AllocationWatch watch;
  rounds_.OnFolded(now, chunk, out);
  CollectEnded(now, out);
}

}  // namespace crowdsurf::worker
