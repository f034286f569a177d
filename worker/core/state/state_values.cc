#include "worker/core/state/state_values.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

// For the two halves of [offset, offset + count), as far as they are not empty: part(first half or
// not, where it begins there, its length).
template <class Part>
void Halves(uint64_t average_bytes, uint64_t offset, uint64_t count, Part part) {
  const uint64_t first = offset < average_bytes ? std::min(count, average_bytes - offset) : 0;
  if (first > 0) part(true, offset, first);
  if (first < count) part(false, offset + first - average_bytes, count - first);
}

}  // namespace

void StateValues::Append(uint64_t offset, uint64_t count, Bytes& out) const {
  CHECK_LE(offset, bytes());
  CHECK_LE(count, bytes() - offset);
  Halves(average.size_bytes(), offset, count, [&](bool first, uint64_t at, uint64_t length) {
    const auto* from = reinterpret_cast<const uint8_t*>((first ? average : velocity).data());
    out.insert(out.end(), from + at, from + at + length);
  });
}

ByteView StateValues::At(uint64_t offset, uint64_t count, Bytes& both) const {
  CHECK_LE(offset, bytes());
  CHECK_LE(count, bytes() - offset);
  ByteView whole;
  Halves(average.size_bytes(), offset, count, [&](bool first, uint64_t at, uint64_t length) {
    const auto* from = reinterpret_cast<const uint8_t*>((first ? average : velocity).data());
    if (length == count) whole = {from + at, count};
  });
  if (whole.size() == count) return whole;
  both.clear();
  Append(offset, count, both);
  return both;
}

void StatePlaces::Write(uint64_t offset, ByteView bytes) const {
  const uint64_t all = average.size_bytes() + velocity.size_bytes();
  CHECK_LE(offset, all);
  CHECK_LE(bytes.size(), all - offset);
  Halves(average.size_bytes(), offset, bytes.size(),
         [&, from = bytes.data()](bool first, uint64_t at, uint64_t length) mutable {
           auto* to = reinterpret_cast<uint8_t*>((first ? average : velocity).data());
           std::memcpy(to + at, from, length);
           from += length;
         });
}

}  // namespace crowdsurf::worker
