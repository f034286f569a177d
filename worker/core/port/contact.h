// What peers say of themselves in messages and in the roster. Values; any thread.
//
// Codec in messages_codec.cc.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/id.h"
#include "worker/core/round/rank_set.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/view_hash.h"

namespace crowdsurf::worker {

// How to reach a peer, and what people call it.
struct Contact {
  PeerId id;
  std::string worker;
  std::string peer_endpoint;
  std::string tensor_endpoint;
  bool operator==(const Contact&) const = default;
};

// What a peer holds: the last committed average and the job's count with it.
struct Committed {
  AveragingId averaging = {};  // 0: nothing was ever committed
  Digest root;                 // content hash; none: not hashed yet, so it cannot be fetched
  double job_samples = 0;
  RankSet cells = {};  // IST: of the view, that contributed to it; none: not known, or not IST
  bool operator==(const Committed&) const = default;
};

// Rank of a lineage when two of them meet (docs/views.md).
struct LineageRank {
  uint64_t members = 0;  // that live in it; in a record: of its view at the making
  ViewHash origin;
  bool operator==(const LineageRank&) const = default;
  bool Beats(const LineageRank& other) const {
    return members != other.members ? members > other.members : origin < other.origin;
  }
};

void Encode(const Contact& contact, ByteWriter& out);
Contact DecodeContact(ByteReader& in);
void Encode(const Committed& committed, ByteWriter& out);
Committed DecodeCommitted(ByteReader& in);

}  // namespace crowdsurf::worker
