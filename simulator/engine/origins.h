// Origins: which snapshots are inside a value, carried beside every element of every buffer.
//
// The checkers' own book-keeping, not known to the code under test. A snapshot is what one trainer
// published for one averaging; a fold unites the origins of its inputs, and a snapshot that comes
// in twice is a violation ("counted twice"). Sets are interned, so an element carries a number.
// Owner: one world; single sequence.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/bytes.h"

namespace crowdsurf::simulator {

using SnapshotId = uint32_t;
using OriginId = uint32_t;  // 0: nothing is inside

class Origins {
 public:
  Origins() { Intern({}); }

  OriginId Of(SnapshotId snapshot) { return Intern({snapshot}); }
  struct Union {
    OriginId id = 0;
    bool twice = false;  // a snapshot is in more than one part
  };
  Union Unite(const std::vector<OriginId>& parts);
  const std::vector<SnapshotId>& In(OriginId id) const { return sets_[id]; }
  // What is inside every element of a vector: of all its chunks.
  std::set<SnapshotId> Throughout(const std::vector<OriginId>& vector) const;

 private:
  OriginId Intern(const std::vector<SnapshotId>& set);

  std::vector<std::vector<SnapshotId>> sets_;  // sorted
  std::map<std::vector<SnapshotId>, OriginId> ids_;
};

// A buffer of a virtual agent: values, and what is inside each.
template <class Scalar>
struct Buffer {
  std::vector<Scalar> values;
  std::vector<OriginId> origins;

  void Resize(size_t count) {
    values.assign(count, 0);
    origins.assign(count, 0);
  }
};
using RegionBuffer = Buffer<float>;

// A chunk on its way: wire bytes, and what is inside each element (where somebody watches).
struct Parcel {
  Bytes wire;
  std::vector<OriginId> origins;
};

}  // namespace crowdsurf::simulator
