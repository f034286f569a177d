#include "worker/core/subnet/subnet_exchange.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

// A shared run is cut among its coverers, but not finer than this: 4 KiB of float32 beside a header
// of 48 bytes.
constexpr uint64_t kMinSharedPiece = 1024;

// The members that cover what `member` covers of a tensor: all share its units of every axis.
RankSet CoverersOf(const UnitTensor& tensor, size_t member, const UnitPartition& partition) {
  RankSet coverers = RankSet::FirstRanks(partition.members());
  for (const UnitAxis& axis : tensor.axes)
    coverers = coverers & partition.Sharers(member, axis.group);
  return coverers;
}

// What one member alone covers comes first, by member; then what several do.
auto OrderOf(RankSet coverers) { return std::pair(coverers.size() > 1, coverers.first()); }

}  // namespace

SubnetExchange::SubnetExchange(const UnitSchema& schema, const UnitPartition& partition,
                               uint32_t chunk_elements)
    : elements_(schema.elements()) {
  CHECK_GT(chunk_elements, 0U);
  AddSections(schema, partition);
  CutChunks(chunk_elements, partition.members());
}

void SubnetExchange::AddSections(const UnitSchema& schema, const UnitPartition& partition) {
  uint64_t begin = 0;
  for (const UnitTensor& tensor : schema.tensors()) {
    for (size_t member = 0; member < partition.members(); ++member) {
      const RankSet coverers = CoverersOf(tensor, member, partition);
      if (coverers.first() != member) continue;  // the first of them has named it
      sections_.push_back({coverers, CoordinateBlock(tensor, begin, partition.SetsOf(member)), 0});
    }
    uint64_t elements = 1;
    for (const uint64_t dimension : tensor.shape) elements *= dimension;
    begin += elements;
  }
  // Stable: tensors keep their order among those that the same members cover.
  std::stable_sort(sections_.begin(), sections_.end(), [](const Section& a, const Section& b) {
    return std::tuple(OrderOf(a.coverers), a.coverers.bits()) <
           std::tuple(OrderOf(b.coverers), b.coverers.bits());
  });
  for (Section& section : sections_) {
    section.begin = size_;
    size_ += section.block.size();
  }
}

std::pair<size_t, uint64_t> SubnetExchange::RunFrom(size_t first) const {
  uint64_t elements = 0;
  size_t last = first;
  while (last < sections_.size() && sections_[last].coverers == sections_[first].coverers)
    elements += sections_[last++].block.size();
  return {last - first, elements};
}

void SubnetExchange::CutChunks(uint32_t chunk_elements, size_t members) {
  std::vector<uint64_t> owned(members);  // elements: the owner with the least takes the next chunk
  for (size_t first = 0; first < sections_.size();) {
    const auto [count, elements] = RunFrom(first);
    const RankSet coverers = sections_[first].coverers;
    // Coverers share the work of what they share.
    const uint64_t fair = (elements + coverers.size() - 1) / coverers.size();
    const uint64_t piece = std::min<uint64_t>(chunk_elements, std::max(fair, kMinSharedPiece));
    for (uint64_t at = 0; at < elements; at += piece) {
      size_t owner = coverers.first();
      for (size_t rank = owner; rank < members; ++rank) {
        if (coverers.Contains(rank) && owned[rank] < owned[owner]) owner = rank;
      }
      const auto length = static_cast<uint32_t>(std::min(piece, elements - at));
      owned[owner] += length;
      chunks_.push_back(
          {{static_cast<uint16_t>(owner), sections_[first].begin + at, length}, coverers});
    }
    first += count;
  }
}

// visit(begin in the flat vector, begin in the chunk, count)
template <class Visit>
void SubnetExchange::ForEachRun(size_t chunk, Visit&& visit) const {
  CHECK_LT(chunk, chunks_.size());
  const ChunkSpan& span = chunks_[chunk].span;
  const uint64_t end = span.begin + span.count;
  auto section = std::partition_point(sections_.begin(), sections_.end(), [&](const Section& s) {
    return s.begin + s.block.size() <= span.begin;
  });
  uint64_t at = 0;
  for (; section != sections_.end() && section->begin < end; ++section) {
    const uint64_t from = std::max(section->begin, span.begin);
    const uint64_t to = std::min(section->begin + section->block.size(), end);
    section->block.ForEachRun(from - section->begin, to - from,
                              [&](uint64_t begin, uint64_t count) {
                                visit(begin, at, count);
                                at += count;
                              });
  }
}

template <class Scalar>
void SubnetExchange::Gather(size_t chunk, std::span<const Scalar> flat,
                            std::span<Scalar> values) const {
  CHECK_EQ(flat.size(), elements_);
  CHECK_EQ(values.size(), chunks_[chunk].span.count);
  ForEachRun(chunk, [&](uint64_t begin, uint64_t at, uint64_t count) {
    std::copy_n(flat.data() + begin, count, values.data() + at);
  });
}

template <class Scalar>
void SubnetExchange::Scatter(size_t chunk, std::span<const Scalar> values,
                             std::span<Scalar> flat) const {
  CHECK_EQ(flat.size(), elements_);
  CHECK_EQ(values.size(), chunks_[chunk].span.count);
  ForEachRun(chunk, [&](uint64_t begin, uint64_t at, uint64_t count) {
    std::copy_n(values.data() + at, count, flat.data() + begin);
  });
}

template <class Scalar>
Bytes SubnetExchange::Encode(WireFormat wire, size_t chunk, std::span<const Scalar> flat) const {
  std::vector<Scalar> values(chunks_[chunk].span.count);
  Gather(chunk, flat, std::span<Scalar>(values));
  Bytes payload(values.size() * WireWidth<Scalar>(wire));
  EncodeWire(wire, std::span<const Scalar>(values), std::span<uint8_t>(payload));
  return payload;
}

template <class Scalar>
bool SubnetExchange::Decode(WireFormat wire, size_t chunk, ByteView payload,
                            std::span<Scalar> flat) const {
  std::vector<Scalar> values(chunks_[chunk].span.count);
  // Nothing of a payload is written before all of it is found sound.
  if (!WireIsSound<Scalar>(wire, payload, values.size())) return false;
  DecodeWire(wire, payload, std::span<Scalar>(values));
  Scatter(chunk, std::span<const Scalar>(values), flat);
  return true;
}

template void SubnetExchange::Gather<float>(size_t, std::span<const float>, std::span<float>) const;
template void SubnetExchange::Gather<double>(size_t, std::span<const double>,
                                             std::span<double>) const;
template void SubnetExchange::Scatter<float>(size_t, std::span<const float>,
                                             std::span<float>) const;
template void SubnetExchange::Scatter<double>(size_t, std::span<const double>,
                                              std::span<double>) const;
template Bytes SubnetExchange::Encode<float>(WireFormat, size_t, std::span<const float>) const;
template Bytes SubnetExchange::Encode<double>(WireFormat, size_t, std::span<const double>) const;
template bool SubnetExchange::Decode<float>(WireFormat, size_t, ByteView, std::span<float>) const;
template bool SubnetExchange::Decode<double>(WireFormat, size_t, ByteView, std::span<double>) const;

}  // namespace crowdsurf::worker
