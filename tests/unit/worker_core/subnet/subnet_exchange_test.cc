// The one round of an averaging of sub-networks, against masks on the whole vector.
#include "worker/core/subnet/subnet_exchange.h"

#include <gtest/gtest.h>

#include <bit>

#include "tests/unit/worker_core/subnet/drawn_model.h"
#include "worker/core/reduce/fold.h"
#include "worker/core/vector/coordinate_mask.h"
#include "worker/core/vector/masked_chunk.h"

namespace crowdsurf::worker {
namespace {

struct Drawn {
  explicit Drawn(uint64_t seed)
      : rng(seed),
        schema(DrawSchema(rng)),
        weights(DrawWeights(1 + rng.Uniform(12), rng)),
        partition({rng.Next(), 1, AveragingId(1)}, weights, schema.units()),
        exchange(schema, partition, 1 + static_cast<uint32_t>(rng.Uniform(40))) {
    for (const auto& units : UnitsOfElements(schema)) {
      RankSet& who = coverers.emplace_back();
      for (size_t rank = 0; rank < weights.size(); ++rank) {
        if (Covers(partition.SetsOf(rank), units)) who.Insert(rank);
      }
    }
  }
  size_t members() const { return weights.size(); }

  Rng rng;
  UnitSchema schema;
  std::vector<uint32_t> weights;
  UnitPartition partition;
  SubnetExchange exchange;
  std::vector<RankSet> coverers;  // of each element
};

TEST(SubnetExchange, ChunksHoldWhatSomebodyCoversOnceWithItsCoverers) {
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE(seed);
    Drawn drawn(seed);
    std::vector<double> place(drawn.schema.elements());
    for (size_t i = 0; i < place.size(); ++i) place[i] = static_cast<double>(i);
    std::vector<int> found(place.size());
    uint64_t at = 0;
    bool shared = false;
    for (size_t c = 0; c < drawn.exchange.chunks().size(); ++c) {
      const auto& [span, coverers] = drawn.exchange.chunks()[c];
      ASSERT_EQ(span.begin, at);
      ASSERT_GT(span.count, 0u);
      at += span.count;
      EXPECT_TRUE(coverers.Contains(span.owner));
      EXPECT_FALSE(shared && coverers.size() == 1) << "what one covers comes first";
      shared = coverers.size() > 1;
      std::vector<double> values(span.count);
      drawn.exchange.Gather(c, std::span<const double>(place), std::span(values));
      for (const double value : values) {
        const auto element = static_cast<size_t>(value);
        ++found[element];
        ASSERT_EQ(drawn.coverers[element], coverers);
      }
    }
    EXPECT_EQ(at, drawn.exchange.size());
    uint64_t uncovered = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i], drawn.coverers[i].empty() ? 0 : 1);
      uncovered += drawn.coverers[i].empty() ? 1 : 0;
    }
    EXPECT_EQ(drawn.exchange.uncovered(), uncovered);
  }
}

// What the owner of a chunk makes of the payloads of its coverers, as it travels to all.
Bytes ResultOf(const Drawn& drawn, size_t chunk, WireFormat wire,
               const std::vector<std::vector<float>>& models) {
  const auto& [span, coverers] = drawn.exchange.chunks()[chunk];
  std::vector<Bytes> inputs(drawn.members());
  for (size_t rank = 0; rank < drawn.members(); ++rank) {
    if (rank == span.owner || drawn.exchange.chunks()[chunk].HasInputOf(rank))
      inputs[rank] = drawn.exchange.Encode(wire, chunk, std::span<const float>(models[rank]));
  }
  if (coverers.size() == 1) return inputs[span.owner];
  const std::vector<double> weights(drawn.weights.begin(), drawn.weights.end());
  const std::vector<ByteView> views(inputs.begin(), inputs.end());
  std::vector<float> mean(span.count);
  FoldInputs<float>(wire, coverers, weights, views, mean);
  Bytes result(span.count * WireWidth<float>(wire));
  EncodeWire(wire, std::span<const float>(mean), std::span(result));
  return result;
}

// The masked group reduce of docs/round.md over the whole vector, with an index set on every input,
// is what the exchange must come to, bit for bit.
std::vector<float> MaskedReduce(const Drawn& drawn, WireFormat wire,
                                const std::vector<std::vector<float>>& models) {
  std::vector<Bytes> inputs;
  for (size_t rank = 0; rank < drawn.members(); ++rank) {
    ChunkExtents extents;
    for (uint32_t i = 0; i < drawn.coverers.size(); ++i) {
      if (!drawn.coverers[i].Contains(rank)) continue;
      if (!extents.empty() && extents.back().begin + extents.back().count == i)
        ++extents.back().count;
      else
        extents.push_back({i, 1});
    }
    const std::span<const float> model(models[rank]);
    const bool whole = ElementsOf(extents) == model.size();
    Bytes plain(model.size() * WireWidth<float>(wire));
    EncodeWire(wire, model, std::span(plain));
    inputs.push_back(whole ? plain : EncodeMaskedInput(wire, extents, model));
  }
  const std::vector<double> weights(drawn.weights.begin(), drawn.weights.end());
  const std::vector<ByteView> views(inputs.begin(), inputs.end());
  auto fold =
      FoldMasked<float>(wire, RankSet::FirstRanks(drawn.members()), weights, views, models[0]);
  // Results travel rounded, what nobody covered does not.
  std::vector<uint8_t> travelled(fold.values.size() * WireWidth<float>(wire));
  EncodeWire(wire, std::span<const float>(fold.values), std::span(travelled));
  std::vector<float> rounded(fold.values.size());
  DecodeWire(wire, travelled, std::span(rounded));
  for (const ChunkExtent& kept : fold.kept) {
    for (uint32_t i = kept.begin; i < kept.begin + kept.count; ++i) rounded[i] = fold.values[i];
  }
  return rounded;
}

TEST(SubnetExchange, ComesToTheMaskedMeanOfTheWholeVectorBitForBit) {
  for (const WireFormat wire :
       {WireFormat::kFloat32, WireFormat::kFloat16, WireFormat::kBFloat16}) {
    for (uint64_t seed = 1; seed <= 300; ++seed) {
      SCOPED_TRACE(seed);
      Drawn drawn(seed);
      std::vector<std::vector<float>> models(drawn.members());
      models[0].resize(drawn.schema.elements());
      for (float& x : models[0]) x = static_cast<float>(drawn.rng.Normal());
      for (size_t rank = 1; rank < models.size(); ++rank) models[rank] = models[0];
      for (size_t rank = 0; rank < models.size(); ++rank) {
        for (size_t i = 0; i < models[rank].size(); ++i) {
          if (drawn.coverers[i].Contains(rank))
            models[rank][i] += static_cast<float>(drawn.rng.Normal());
        }
      }
      const auto expected = MaskedReduce(drawn, wire, models);
      auto averaged = models;
      for (size_t c = 0; c < drawn.exchange.chunks().size(); ++c) {
        const Bytes result = ResultOf(drawn, c, wire, models);
        for (auto& model : averaged)
          ASSERT_TRUE(drawn.exchange.Decode(wire, c, result, std::span(model)));
      }
      for (const auto& model : averaged) {
        for (size_t i = 0; i < model.size(); ++i)
          ASSERT_EQ(std::bit_cast<uint32_t>(model[i]), std::bit_cast<uint32_t>(expected[i])) << i;
      }
    }
  }
}

TEST(SubnetExchange, APayloadOfAnotherSizeOrNotFiniteIsRefused) {
  Drawn drawn(3);
  std::vector<float> flat(drawn.schema.elements(), 1.0f);
  const Bytes good = drawn.exchange.Encode(WireFormat::kFloat32, 0, std::span<const float>(flat));
  const auto before = flat;
  Bytes bad = good;
  bad.resize(bad.size() - 1);
  EXPECT_FALSE(drawn.exchange.Decode(WireFormat::kFloat32, 0, bad, std::span(flat)));
  bad = good;
  bad[3] = 0x7f;
  bad[2] = 0x80;
  EXPECT_FALSE(drawn.exchange.Decode(WireFormat::kFloat32, 0, bad, std::span(flat)));
  EXPECT_EQ(flat, before);
}

// Four equal members of a layer of 64 units, bytes of values alone: first and last matrix and bias
// go from their only coverer to three others, the output bias from three to one and back.
TEST(SubnetExchange, BytesAreThoseOfAnAllGatherOfSubnets) {
  const auto schema = *UnitSchema::Of({{"w0", {64, 20}, {{.axis = 0}}},
                                       {"b0", {64}, {{.axis = 0}}},
                                       {"w1", {10, 64}, {{.axis = 1}}},
                                       {"b1", {10}, {}}});
  const UnitPartition partition({1, 1, AveragingId(1)}, std::vector<uint32_t>(4, 1),
                                schema.units());
  const SubnetExchange exchange(schema, partition, 32'768);
  uint64_t inputs = 0, results = 0;
  std::vector<uint64_t> owned(4);
  for (const SubnetChunk& chunk : exchange.chunks()) {
    for (size_t rank = 0; rank < 4; ++rank) inputs += chunk.HasInputOf(rank) ? chunk.span.count : 0;
    results += uint64_t{3} * chunk.span.count;
    owned[chunk.span.owner] += chunk.span.count;
  }
  EXPECT_EQ(inputs, 3u * 10);
  EXPECT_EQ(results, 3u * (64 * 20 + 64 + 10 * 64 + 10));
  constexpr uint64_t kQuarter = uint64_t{16} * 31;
  EXPECT_EQ(owned, (std::vector<uint64_t>{kQuarter + 10, kQuarter, kQuarter, kQuarter}));
  EXPECT_EQ(exchange.uncovered(), 0u);
}

TEST(SubnetExchange, ALargeSharedTensorHasEveryMemberForAnOwner) {
  const auto schema = *UnitSchema::Of({{"embedding", {5000, 8}, {}}, {"w", {9}, {{.axis = 0}}}});
  const UnitPartition partition({1, 1, AveragingId(1)}, std::vector<uint32_t>(8, 1),
                                schema.units());
  const SubnetExchange exchange(schema, partition, 1 << 20);
  std::vector<uint64_t> owned(8);
  for (const SubnetChunk& chunk : exchange.chunks()) owned[chunk.span.owner] += chunk.span.count;
  for (const uint64_t elements : owned) EXPECT_NEAR(static_cast<double>(elements), 40009.0 / 8, 2);
}

}  // namespace
}  // namespace crowdsurf::worker
