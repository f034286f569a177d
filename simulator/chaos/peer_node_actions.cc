// What the peer of a node asks for: messages, rounds, its trainer, a state (peer_node.h).
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "simulator/chaos/peer_node.h"
#include "simulator/engine/node_config.h"

namespace crowdsurf::simulator {

using worker::Actions;
using worker::FoldChunk;
using worker::Region;
using worker::RoundHandle;

namespace {

constexpr int kFetchTries = 5;

Digest ContentRoot(const RegionBuffer& region) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(region.values.data());
  return Sha256({bytes, region.values.size() * sizeof(float)});
}

}  // namespace

void PeerNode::Execute(const worker::Action& action) {
  if (const auto* send = std::get_if<worker::Send>(&action)) {
    Bytes body = send->body;
    if (scenario_.plant == ChaosPlant::kCutShort && scenario_.planted == index_) body.pop_back();
    outside_.SendBody(index_, send->to, body);
  } else if (const auto* introduce = std::get_if<worker::Introduce>(&action)) {
    known_.insert(introduce->peer);
  } else if (const auto* put = std::get_if<worker::PutRecord>(&action)) {
    outside_.Put(index_, *put);
  } else if (const auto* watch = std::get_if<worker::WatchKey>(&action)) {
    outside_.Watch(index_, watch->key, true);
  } else if (const auto* unwatch = std::get_if<worker::UnwatchKey>(&action)) {
    outside_.Watch(index_, unwatch->key, false);
  } else if (const auto* open = std::get_if<worker::OpenBuffers>(&action)) {
    Open(*open);
  } else if (const auto* close = std::get_if<worker::CloseBuffers>(&action)) {
    chunks_.Close(close->round);
  } else if (const auto* chunk = std::get_if<worker::Chunk>(&action)) {
    ExecuteChunk(*chunk);
  } else if (const auto* speak = std::get_if<worker::SpeakChunk>(&action)) {
    Speak(*speak);
  } else {
    ExecuteLink(action);
  }
}

// What concerns the trainer and the state.
void PeerNode::ExecuteLink(const worker::Action& action) {
  if (const auto* request = std::get_if<worker::RequestPublish>(&action)) {
    Request(request->averaging);
  } else if (const auto* wake = std::get_if<worker::WakeAt>(&action)) {
    Wake(*wake);
  } else if (std::holds_alternative<worker::LetStart>(action)) {
    trainer_.Start(outside_.queue().now());
  } else if (const auto* deliver = std::get_if<worker::Deliver>(&action)) {
    TakeDelivery(*deliver);
    if (scenario_.plant == ChaosPlant::kDeliverTwice && scenario_.planted == index_)
      TakeDelivery(*deliver);
  } else if (const auto* release = std::get_if<worker::ReleaseOutbox>(&action)) {
    ++request_serial_;
    trainer_.OnRelease(release->averaging);
  } else if (const auto* fetch = std::get_if<worker::FetchState>(&action)) {
    Fetch(*fetch);
  } else if (std::holds_alternative<worker::Leave>(action)) {
    left_ = true;
    Kill();
  }
}

void PeerNode::Open(const worker::OpenBuffers& open) {
  if (open.from == Region::kOutbox) {
    if (snapshot_) outside_.peer_checkers().OnWeighed(*snapshot_, open.weight);
    if (scenario_.plant == ChaosPlant::kEarlyPublish && scenario_.planted == index_)
      trainer_.Publish(0, *snapshot_, outside_.origins().Of(*snapshot_), At(Region::kOutbox));
  } else {
    Used(open.from);
  }
  if (donation_ && donation_->region == open.to) donation_.reset();
  const WatchedChunks::Opened opened{open.instance,  open.self,    open.chunks, open.wire,
                                     &At(open.from), &At(open.to), open.weight, open.mask};
  made_by_.insert_or_assign(open.to, opened);
  chunks_.Open(open.round, opened);
}

// A round's output is used: it counts as applied.
void PeerNode::Used(Region region) {
  const auto made = made_by_.find(region);
  if (made == made_by_.end()) return;
  std::vector<Bytes> slots;
  for (const worker::ChunkSpan& span : made->second.chunks)
    slots.push_back(PackSpan(At(region), span, made->second.wire).wire);
  outside_.round_checkers().OnUsed(index_, made->second.instance, slots);
}

void PeerNode::ExecuteChunk(const worker::Chunk& chunk) {
  if (!chunks_.IsOpen(chunk.round)) return;
  if (const auto* fold = std::get_if<FoldChunk>(&chunk.action)) {
    Fold(chunk.round, *fold);
  } else if (const auto* store = std::get_if<worker::StoreResult>(&chunk.action)) {
    CHECK(offered_ != nullptr && offered_->chunk == store->chunk);
    chunks_.Store(chunk.round, store->chunk, offered_->parcel);
  } else if (const auto* empty = std::get_if<worker::EmptySlot>(&chunk.action)) {
    chunks_.Empty(chunk.round, empty->chunk);
  } else if (const auto* drop = std::get_if<worker::DropInputs>(&chunk.action)) {
    folding_.erase({chunk.round, {drop->chunk, drop->assigned}});
    chunks_.Drop(chunk.round, drop->chunk, drop->assigned);
  } else {
    Say(chunk.round, chunk.action);
  }
}

void PeerNode::Say(const RoundHandle& round, const worker::RoundAction& action) {
  const worker::InstanceId instance = chunks_.Of(round).instance;
  if (const auto* input = std::get_if<worker::SendInput>(&action)) {
    const ChunkFrame frame{.rank = chunks_.Of(round).self,
                           .chunk = input->chunk,
                           .assigned = input->assigned,
                           .parcel = chunks_.Input(round, input->chunk)};
    const int copies =
        scenario_.plant == ChaosPlant::kResendAll && scenario_.planted == index_ ? 4 : 1;
    for (int i = 0; i < copies; ++i) outside_.SendChunk(index_, input->to, instance, frame);
  } else if (const auto* result = std::get_if<worker::SendResult>(&action)) {
    outside_.SendChunk(index_, result->to, instance,
                       {true, 0, result->chunk, result->assigned, result->mask, result->hash,
                        chunks_.Result(round, result->chunk)});
  }
}

void PeerNode::Speak(const worker::SpeakChunk& speak) {
  Used(speak.region);
  Parcel parcel = PackSpan(At(speak.region), speak.span, speak.wire);
  outside_.round_checkers().OnSpoke(index_, speak.instance, speak.rank, speak.chunk, parcel);
  outside_.SendChunk(index_, speak.to, speak.instance,
                     {.rank = speak.rank,
                      .chunk = speak.chunk,
                      .assigned = speak.assigned,
                      .parcel = std::move(parcel)});
}

void PeerNode::Fold(RoundHandle round, const FoldChunk& fold) {
  const uint64_t serial = serial_++;
  folding_[{round, {fold.chunk, fold.assigned}}] = serial;
  outside_.queue().After(scenario_.fold_time, [this, round, fold, serial] {
    Do([this, round, fold, serial] { FinishFold(round, fold, serial); });
  });
}

void PeerNode::FinishFold(RoundHandle round, const FoldChunk& fold, uint64_t serial) {
  const auto pending = folding_.find({round, {fold.chunk, fold.assigned}});
  if (pending == folding_.end() || pending->second != serial) return;
  folding_.erase(pending);
  if (!chunks_.IsOpen(round)) return;
  const uint64_t hash = chunks_.Fold(round, fold);
  Actions actions;
  peer_->OnFolded(outside_.queue().now(), {round, fold.chunk, fold.assigned, hash}, actions);
  Run(actions);
}

void PeerNode::Request(uint64_t averaging) {
  const uint64_t serial = ++request_serial_;
  if (!trainer_.started()) return;
  outside_.queue().At(trainer_.NextBoundary(outside_.queue().now()), [this, averaging, serial] {
    Do([this, averaging, serial] {
      if (serial == request_serial_) Publish(averaging);
    });
  });
}

void PeerNode::Publish(uint64_t averaging) {
  const Time now = outside_.queue().now();
  const SnapshotId snapshot = outside_.peer_checkers().NewSnapshot(index_, trainer_.Samples(now));
  if (!trainer_.Publish(averaging, snapshot, outside_.origins().Of(snapshot),
                        At(Region::kOutbox))) {
    Local(worker::PublishRefused{averaging});
    return;
  }
  snapshot_ = snapshot;
  outside_.peer_checkers().OnPublished(snapshot, At(Region::kOutbox).values);
  Local(worker::Published{averaging, trainer_.Samples(now), trainer_.Steps(now)});
}

void PeerNode::TakeDelivery(const worker::Deliver& deliver) {
  Used(deliver.region);
  RegionBuffer& region = At(deliver.region);
  worker::Deliver told = deliver;
  if (scenario_.planted == index_) {
    if (scenario_.plant == ChaosPlant::kWrongCount) told.job_samples += 1;
    if (scenario_.plant == ChaosPlant::kWrongValue) region.values[0] += 0.25F;
  }
  outside_.OnDeliver(index_, told, region);
  trainer_.OnDeliver(deliver.averaging, At(Region::kOutbox), region);
  donation_.reset();
  const RegionBuffer delivered = region;
  outside_.queue().After(kHashTime, [this, deliver, delivered] {
    Do([this, deliver, delivered] {
      const Digest root = ContentRoot(delivered);
      if (ContentRoot(At(deliver.region)) != root) return;  // overwritten meanwhile
      donation_ = Donation{deliver.averaging, root, deliver.region};
      Local(worker::StateHashed{deliver.averaging, root});
    });
  });
}

bool PeerNode::Serves(uint64_t averaging, const Digest& root, RegionBuffer& out) const {
  if (!alive_ || frozen_ || !donation_) return false;
  if (donation_->averaging != averaging || donation_->root != root) return false;
  out = regions_[static_cast<size_t>(donation_->region)];
  return true;
}

void PeerNode::Fetch(const worker::FetchState& fetch) {
  const uint64_t serial = ++fetch_serial_;
  outside_.queue().After(kFetchTime, [this, fetch, serial] { FinishFetch(fetch, serial, 1); });
}

void PeerNode::FinishFetch(const worker::FetchState& fetch, uint64_t serial, int tries) {
  Do([this, fetch, serial, tries] {
    if (serial != fetch_serial_) return;
    RegionBuffer found;
    if (!outside_.FindState(index_, fetch, found)) {
      if (tries < kFetchTries) {
        outside_.queue().After(kFetchTime * (1 << tries), [this, fetch, serial, tries] {
          FinishFetch(fetch, serial, tries + 1);
        });
        return;
      }
      Local(worker::StateFetched{fetch.averaging, fetch.root, false});
      return;
    }
    made_by_.erase(fetch.region);
    At(fetch.region) = std::move(found);
    donation_ = Donation{fetch.averaging, fetch.root, fetch.region};
    if (fetch.adopt) {
      trainer_.Adopt(At(fetch.region));
      trainer_.Start(outside_.queue().now());
    }
    Local(worker::StateFetched{fetch.averaging, fetch.root, true});
  });
}

void PeerNode::Wake(const worker::WakeAt& wake) {
  const uint64_t serial = ++wake_serial_;
  const Time when = trainer_.Passes(wake.steps, wake.samples);
  if (when.infinite()) return;
  outside_.queue().At(when, [this, serial] {
    if (serial != wake_serial_) return;
    const Time now = outside_.queue().now();
    Local(worker::Progress{trainer_.Steps(now), trainer_.Samples(now), {}, {}});
  });
}

}  // namespace crowdsurf::simulator
