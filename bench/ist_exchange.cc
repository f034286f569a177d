#include "bench/ist_exchange.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/digest.h"
#include "base/rng.h"
#include "worker/core/reduce/fold.h"
#include "worker/core/round/round_codec.h"
#include "worker/edge/tensor/tensor_frame.h"
#include "worker/trainer/data/digits.h"
#include "worker/trainer/gru_model.h"
#include "worker/trainer/mlp_model.h"

namespace crowdsurf::bench {
namespace {

using worker::SubnetChunk;
using worker::SubnetExchange;

constexpr auto kWire = worker::WireFormat::kFloat32;
constexpr uint32_t kChunkElements = 32'768;  // 128 KiB, as agents cut it

// On the wire, with the head that agents send.
uint64_t SizeOfFrame(worker::TensorKind kind, uint32_t chunk, const Bytes& payload) {
  const worker::InstanceId instance;
  const auto head =
      worker::EncodeTensorHeader({.kind = kind,
                                  .payload_bytes = static_cast<uint32_t>(payload.size()),
                                  .chunk = chunk,
                                  .instance = instance,
                                  .hash = worker::TensorPayloadHash(instance, payload)});
  return head.size() + payload.size();
}

// READY and HAVE of each ordered pair of members.
uint64_t SizeOfRoundFrames(size_t members) {
  const uint64_t pair = worker::EncodeFrame({{}, worker::Ready{}}).size() +
                        worker::EncodeFrame({{}, worker::Have{}}).size();
  return members * (members - 1) * pair;
}

// The mean of the inputs that `coverers` sent, as it travels to all.
Bytes ResultOf(const SubnetChunk& chunk, const std::vector<Bytes>& inputs) {
  if (chunk.coverers.size() == 1) return inputs[chunk.span.owner];
  const std::vector<double> weights(inputs.size(), 1.0);
  const std::vector<ByteView> views(inputs.begin(), inputs.end());
  std::vector<float> mean(chunk.span.count);
  worker::FoldInputs<float>(kWire, chunk.coverers, weights, views, mean);
  Bytes result(mean.size() * worker::WireWidth<float>(kWire));
  worker::EncodeWire(kWire, std::span<const float>(mean), std::span(result));
  return result;
}

// Any model of the built-in trainer: widths down to one, and more members than units.
worker::UnitSchema DrawModel(Rng& rng) {
  if (rng.Bernoulli(0.3)) {
    const trainer::GruModel<float> model(1 + rng.Uniform(20), 1 + rng.Uniform(40));
    return model.table().units();
  }
  std::vector<size_t> hidden(1 + rng.Uniform(3));
  for (size_t& width : hidden) width = 1 + rng.Uniform(80);
  return trainer::MlpModel<float>(1 + rng.Uniform(20), hidden, 1 + rng.Uniform(10)).table().units();
}

// Of every sign and nearly every exponent, so that any arithmetic on them shows; no sum overflows.
float DrawValue(Rng& rng) {
  while (true) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(rng.Next()));
    if (std::abs(value) < 1e30f) return value;
  }
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool GatherAndScatterKeepBits(const worker::Subnet& subnet, std::span<const float> model) {
  std::vector<float> packed(subnet.size()), again(packed.size());
  std::vector<float> other(model.size(), 0.5f), touched(model.size(), 0.5f);
  subnet.Gather(model, std::span(packed));
  subnet.Scatter(std::span<const float>(packed), std::span(other));
  subnet.Gather(std::span<const float>(other), std::span(again));
  // What was not gathered is as it was: with the sub-network's values put back, all is.
  subnet.Scatter(std::span<const float>(std::vector<float>(packed.size(), 0.5f)), std::span(other));
  return SameBits(packed, again) && SameBits(other, touched);
}

}  // namespace

uint64_t AverageSubnets(const SubnetExchange& exchange,
                        const std::vector<std::span<float>>& models) {
  uint64_t bytes = SizeOfRoundFrames(models.size());
  // Results first, then stores: an owner's inputs must not be results of this exchange.
  std::vector<Bytes> results;
  for (uint32_t c = 0; c < exchange.chunks().size(); ++c) {
    const SubnetChunk& chunk = exchange.chunks()[c];
    std::vector<Bytes> inputs(models.size());
    for (size_t rank = 0; rank < models.size(); ++rank) {
      if (!chunk.coverers.Contains(rank)) continue;
      inputs[rank] = exchange.Encode(kWire, c, std::span<const float>(models[rank]));
      if (chunk.HasInputOf(rank)) bytes += SizeOfFrame(worker::TensorKind::kInput, c, inputs[rank]);
    }
    results.push_back(ResultOf(chunk, inputs));
    bytes += (models.size() - 1) * SizeOfFrame(worker::TensorKind::kResult, c, results.back());
  }
  for (const auto& model : models) {
    for (size_t c = 0; c < results.size(); ++c) CHECK(exchange.Decode(kWire, c, results[c], model));
  }
  return bytes;
}

double IstShareOfRing(const std::vector<size_t>& hidden, size_t members, uint64_t seed) {
  const trainer::MlpModel<float> model(trainer::kDigitFeatures, hidden, trainer::kDigitClasses);
  const worker::UnitSchema schema = model.table().units();
  const worker::UnitPartition partition({seed, 1, worker::AveragingId(1)},
                                        std::vector<uint32_t>(members, 1), schema.units());
  std::vector<std::vector<float>> values(members, std::vector<float>(schema.elements(), 1.0f));
  const std::vector<std::span<float>> models(values.begin(), values.end());
  const uint64_t bytes = AverageSubnets(SubnetExchange(schema, partition, kChunkElements), models);
  const auto n = static_cast<double>(members);
  // A ring all-reduce sends 2 (n - 1) / n of the model.
  const double ring = 2 * static_cast<double>(schema.elements() * sizeof(float)) * (n - 1) / n;
  return static_cast<double>(bytes) / n / ring;
}

bool IstBitsComeBack(uint64_t seed, int draws) {
  Rng rng(seed);
  for (int draw = 0; draw < draws; ++draw) {
    const worker::UnitSchema schema = DrawModel(rng);
    std::vector<uint32_t> weights(1 + rng.Uniform(64));
    for (uint32_t& weight : weights) weight = 1 + static_cast<uint32_t>(rng.Uniform(100));
    const worker::UnitPartition partition({rng.Next(), 1, worker::AveragingId(1)}, weights,
                                          schema.units());
    const SubnetExchange exchange(schema, partition, kChunkElements);
    std::vector<std::vector<float>> values(weights.size(), std::vector<float>(schema.elements()));
    for (auto& model : values) {
      for (float& value : model) value = DrawValue(rng);
    }
    auto expected = values;
    std::vector<int> coverers(schema.elements());
    for (size_t rank = 0; rank < values.size(); ++rank) {
      const worker::Subnet subnet(schema, partition.SetsOf(rank));
      if (!GatherAndScatterKeepBits(subnet, values[rank])) return false;
      std::vector<float> packed(subnet.size());
      subnet.Gather(std::span<const float>(values[rank]), std::span(packed));
      // In rank order: where one member alone covers a coordinate, its value is left.
      for (auto& model : expected) subnet.Scatter(std::span<const float>(packed), std::span(model));
      std::vector<int> ones(subnet.size()), count(schema.elements());
      std::fill(ones.begin(), ones.end(), 1);
      subnet.Scatter(std::span<const int>(ones), std::span(count));
      for (size_t i = 0; i < count.size(); ++i) coverers[i] += count[i];
    }
    AverageSubnets(exchange, {values.begin(), values.end()});
    for (size_t rank = 0; rank < values.size(); ++rank) {
      for (size_t i = 0; i < coverers.size(); ++i) {
        const bool same =
            std::bit_cast<uint32_t>(values[rank][i]) == std::bit_cast<uint32_t>(expected[rank][i]);
        // Where several cover it the mean is rounded; bits are promised for one coverer or none.
        if (coverers[i] <= 1 && !same) return false;
      }
    }
  }
  return true;
}

}  // namespace crowdsurf::bench
