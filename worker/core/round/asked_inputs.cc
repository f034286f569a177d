#include "worker/core/round/asked_inputs.h"

namespace crowdsurf::worker {

const AskedInputs::Request* AskedInputs::Find(ChunkIndex chunk, uint8_t rank) const {
  const auto at = requests_.find({chunk, rank});
  return at == requests_.end() ? nullptr : &at->second;
}

void AskedInputs::Add(ChunkIndex chunk, uint8_t rank, const Request& request) {
  const auto [at, fresh] = requests_.try_emplace({chunk, rank}, request);
  if (!fresh) {
    Settle(at->second.speaker);
    at->second = request;
  }
  ++owing_[request.speaker];
}

// One request of it is no more.
void AskedInputs::Settle(const PeerId& speaker) {
  const auto at = owing_.find(speaker);
  if (--at->second == 0) owing_.erase(at);
}

void AskedInputs::EraseChunk(ChunkIndex chunk) {
  auto at = requests_.lower_bound({chunk, 0});
  while (at != requests_.end() && at->first.first == chunk) {
    Settle(at->second.speaker);
    at = requests_.erase(at);
  }
}

template <class Matches>
void AskedInputs::EraseIf(Matches matches) {
  std::erase_if(requests_, [&](const auto& item) {
    if (!matches(item)) return false;
    Settle(item.second.speaker);
    return true;
  });
}

void AskedInputs::EraseRank(uint8_t rank) {
  EraseIf([rank](const auto& item) { return item.first.second == rank; });
}

void AskedInputs::EraseSpeaker(const PeerId& speaker) {
  // By value: it may be one of those that go.
  EraseIf([of = speaker](const auto& item) { return item.second.speaker == of; });
}

void AskedInputs::Clear() {
  requests_.clear();
  owing_.clear();
}

}  // namespace crowdsurf::worker
