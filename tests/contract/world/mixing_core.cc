#include "tests/contract/world/mixing_core.h"

#include <cmath>
#include <utility>

#include "tests/contract/world/allocation_watch.h"
#include "worker/core/port/messages.h"

namespace crowdsurf::worker {

TensorViews ViewsOfContract(uint64_t elements) {
  const auto rows = static_cast<uint32_t>(std::sqrt(static_cast<double>(elements)));
  return {{0, {rows, rows - rows / 4}}};
}

MixingCore::MixingCore(PeerConfig config, uint64_t elements, Rng rng)
    : config_(std::move(config)), elements_(elements), mixing_(config_, metrics_, Logger(), rng) {
  SetVector();
}

// In an agent, Averaging asks for it.
void MixingCore::AskForSnapshot(Actions& out) {
  const auto wanted = mixing_.wanted();
  if (!wanted) return;
  mixing_.OnAsked();
  out.push_back(RequestPublish{*wanted});
}

void MixingCore::EnterView(Time now, const View& view, const ViewHash& hash, Actions& out) {
  const AllocationWatch watch;
  view_ = hash;
  mixing_.OnView(now, view, hash, out);
  SetVector();
}

void MixingCore::StartMixing(Time now, Region inbox, Actions& out) {
  const AllocationWatch watch;
  mixing_.Start(now, inbox, out);
  AskForSnapshot(out);
}

void MixingCore::OnCounted(Time now, AveragingId averaging, const ModelAge& total, Actions& out) {
  const AllocationWatch watch;
  mixing_.OnCounted(now, averaging, total, out);
  AskForSnapshot(out);
}

void MixingCore::OnMessage(Time now, const PeerId& from, ByteView body, Actions& out) {
  const auto message = DecodeMessage(body);
  const AllocationWatch watch;
  if (const auto* pair = std::get_if<message::Pair>(&*message); pair && pair->view == view_)
    mixing_.OnWord(now, from, pair->word, out);
  if (const auto* edge = std::get_if<message::Neighbour>(&*message); edge && edge->view == view_)
    mixing_.OnEdgeWord(now, from, edge->word, out);
  AskForSnapshot(out);
}

void MixingCore::OnPeerDown(Time now, const PeerId& peer, DownEvidence, Actions& out) {
  const AllocationWatch watch;
  mixing_.OnPeerDown(now, peer, out);
  AskForSnapshot(out);
}

void MixingCore::OnLocal(Time now, const LocalEvent& event, Actions& out) {
  const AllocationWatch watch;
  if (const auto* published = std::get_if<Published>(&event)) {
    if (!mixing_.OnSnapshot(now, *published, out))
      out.push_back(ReleaseOutbox{published->averaging});
  } else if (const auto* progress = std::get_if<Progress>(&event)) {
    mixing_.OnProgress(now, *progress, out);
  } else if (const auto* sent = std::get_if<MixSent>(&event)) {
    mixing_.OnSent(now, *sent, out);
  }
  AskForSnapshot(out);
}

void MixingCore::OnTimer(Time now, Actions& out) {
  const AllocationWatch watch;
  mixing_.OnTimer(now, out);
  AskForSnapshot(out);
}

std::optional<MixPlace> MixingCore::PlaceMix(const MixArrived& chunk) const {
  const AllocationWatch watch;
  return mixing_.Place(chunk);
}

void MixingCore::OnMixChunk(Time now, const MixArrived& chunk, Actions& out) {
  const AllocationWatch watch;
  mixing_.OnChunk(now, chunk, out);
  AskForSnapshot(out);
}

std::optional<MixChunk> MixingCore::DescribeMix(const PeerId& to, MixTag tag, uint64_t sequence,
                                                uint32_t chunk) const {
  const AllocationWatch watch;
  return mixing_.Describe(to, tag, sequence, chunk);
}

}  // namespace crowdsurf::worker
