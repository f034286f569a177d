// AskedInputs: which stand-in was asked for which input of an own chunk, and who still owes some.
//
// A request stands until its chunk is folded, or is another owner's, so that whom a round waits for
// is read off in a step for each stand-in. Owner: Round; a value, copied with it. Bounds: one
// request for each rank and own chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "base/id.h"
#include "worker/core/round/chunk_index.h"
#include "worker/core/view/register.h"

namespace crowdsurf::worker {

class AskedInputs {
 public:
  struct Request {
    PeerId speaker;
    Ballot assigned = 0;
  };
  using Key = std::pair<ChunkIndex, uint8_t>;  // own chunk, rank

  // nullptr: there is none.
  const Request* Find(ChunkIndex chunk, uint8_t rank) const;
  // In the place of an earlier one.
  void Add(ChunkIndex chunk, uint8_t rank, const Request& request);
  void EraseChunk(ChunkIndex chunk);
  void EraseRank(uint8_t rank);
  void EraseSpeaker(const PeerId& speaker);
  void Clear();

  const std::map<Key, Request>& requests() const { return requests_; }
  // Stand-ins of which a request stands, each with how many.
  const std::map<PeerId, size_t>& owing() const { return owing_; }

 private:
  template <class Matches>
  void EraseIf(Matches matches);
  void Settle(const PeerId& speaker);

  std::map<Key, Request> requests_;
  std::map<PeerId, size_t> owing_;
};

}  // namespace crowdsurf::worker
