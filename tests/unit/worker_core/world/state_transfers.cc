#include "tests/unit/worker_core/world/state_transfers.h"

#include <algorithm>
#include <cstring>

namespace crowdsurf::worker {
namespace {

int InboxOf(Region region) { return region == Region::kInboxA ? 0 : 1; }
Region RegionOf(int inbox) { return inbox == 0 ? Region::kInboxA : Region::kInboxB; }

ByteView BytesOf(const std::vector<double>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(double)};
}

// A manifest speaks of float32 values: two of them have the bytes of one here.
constexpr uint64_t kFloats = sizeof(double) / sizeof(float);

}  // namespace

StateDonor& StateTransfers::DonorOf(const PeerId& peer) {
  auto& donor = donors_[peer];
  if (donor == nullptr) donor = std::make_unique<StateDonor>(StateDonorOptions{}, metrics_);
  return *donor;
}

// The average and the velocity.
Bytes StateTransfers::StateOf(const PeerId& peer, Region region) const {
  Bytes state;
  for (const Region part : {region, Region::kVelocity}) {
    const ByteView bytes = BytesOf(world_.values(peer, part));
    state.insert(state.end(), bytes.begin(), bytes.end());
  }
  return state;
}

void StateTransfers::Offer(const PeerId& peer, const Deliver& delivered) {
  Bytes state = StateOf(peer, delivered.region);
  if (delivered.parts == StateParts::kAverage) state.resize(state.size() / 2);
  const ByteView bytes = state;
  StateManifest manifest;
  manifest.averaging = delivered.averaging;
  manifest.elements = bytes.size() / sizeof(float);
  manifest.chunk_bytes = static_cast<uint32_t>(chunk_ * sizeof(double));
  manifest.parts = {manifest.elements};
  for (size_t at = 0; at < bytes.size(); at += manifest.chunk_bytes)
    manifest.chunk_hashes.push_back(manifest.Hash(
        bytes.subspan(at, std::min<size_t>(manifest.chunk_bytes, bytes.size() - at))));
  manifest.committed = manifest.Root();
  manifest.job_samples = delivered.job_samples;
  DonorOf(peer).Offer(InboxOf(delivered.region), std::move(manifest));
}

void StateTransfers::Retire(const PeerId& peer, Region region) {
  DonorOf(peer).Retire(InboxOf(region));
}

void StateTransfers::Fetch(const PeerId& peer, const FetchState& asked) {
  Fetching& fetching = fetches_[peer];
  ++fetching.serial;
  fetching.asked = asked;
  fetching.result = {};
  const size_t elements = world_.values(peer, asked.region).size();
  fetching.result.values.assign(2 * elements, 0);
  StateFetchOptions options;
  options.elements = elements * kFloats;
  options.want_opaque = false;
  options.mix = asked.adopt;
  fetching.core.emplace(world_.queue.now(), options, metrics_);
  for (const PeerId& donor : asked.donors) {
    FetchActions actions;
    fetching.core->OnDonor(world_.queue.now(), donor, actions);
    Execute(peer, actions, {});
  }
  Arm(peer);
}

void StateTransfers::Execute(const PeerId& peer, const FetchActions& actions, ByteView payload) {
  Fetching& fetching = fetches_.at(peer);
  for (const FetchAction& action : actions) {
    if (const auto* ask = std::get_if<AskDonor>(&action)) {
      world_.queue.After(kDelay, [this, a = *ask, peer, serial = fetching.serial] {
        Serve(a.to, peer, serial, a.message);
      });
    } else if (const auto* keep = std::get_if<KeepChunk>(&action)) {
      auto* to = reinterpret_cast<uint8_t*>(fetching.result.values.data());
      std::memcpy(to + keep->offset, payload.data(), payload.size());
    } else if (const auto* done = std::get_if<FetchDone>(&action)) {
      return End(peer, done);
    } else if (std::holds_alternative<FetchFailed>(action)) {
      return End(peer, nullptr);
    }
  }
}

void StateTransfers::Serve(const PeerId& donor, const PeerId& joiner, uint64_t serial,
                           const StateMessage& message) {
  if (!world_.alive(donor)) return;
  StateDonor& core = DonorOf(donor);
  if (std::holds_alternative<FetchOver>(message)) return core.OnOver(joiner);
  const auto send = core.OnMessage(world_.queue.now(), joiner, message);
  if (!send) return;
  Bytes payload;
  Time& free = link_free_[donor];
  free = std::max(free, world_.queue.now());
  if (send->bytes > 0) {
    const Bytes state = StateOf(donor, RegionOf(send->inbox));
    const auto from = state.begin() + static_cast<std::ptrdiff_t>(send->offset);
    payload.assign(from, from + send->bytes);
    core.OnSent(joiner);
    free = free + takes_;
  }
  const Duration wait = free - world_.queue.now() + kDelay;
  world_.queue.After(wait, [this, donor, joiner, serial, reply = send->message, payload] {
    Fetching& fetching = fetches_.at(joiner);
    if (fetching.serial != serial || !fetching.core || !world_.alive(joiner)) return;
    FetchActions actions;
    fetching.core->OnReply(world_.queue.now(), donor, reply,
                           {payload.size(), fetching.core->HashOf(payload)}, actions);
    Execute(joiner, actions, payload);
    Arm(joiner);
  });
}

void StateTransfers::Arm(const PeerId& peer) {
  Fetching& fetching = fetches_.at(peer);
  if (!fetching.core) return;
  const Time at = fetching.core->NextDeadline();
  if (at.infinite()) return;
  const Duration wait = std::max(Duration(), at - world_.queue.now());
  world_.queue.After(wait, [this, peer, serial = fetching.serial] {
    Fetching& now_fetching = fetches_.at(peer);
    if (now_fetching.serial != serial || !now_fetching.core || !world_.alive(peer)) return;
    // It has moved since.
    if (now_fetching.core->NextDeadline() > world_.queue.now()) return;
    FetchActions actions;
    now_fetching.core->OnTimer(world_.queue.now(), actions);
    Execute(peer, actions, {});
    Arm(peer);
  });
}

void StateTransfers::End(const PeerId& peer, const FetchDone* done) {
  Fetching& fetching = fetches_.at(peer);
  if (done != nullptr) {
    fetching.result.ok = true;
    fetching.result.mixed = done->mixed;
    fetching.result.averaging = done->manifest.averaging;
    fetching.result.job_samples = done->manifest.job_samples;
  }
  fetching.core.reset();
  world_.over(peer, fetching.asked);
}

}  // namespace crowdsurf::worker
