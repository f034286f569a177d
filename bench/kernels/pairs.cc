#include "bench/kernels/pairs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "base/rng.h"
#include "bench/kernels/hand.h"
#include "bench/kernels/scalar.h"
#include "worker/core/vector/int8_chunk.h"
#include "worker/core/vector/kernels.h"

namespace crowdsurf::bench {
namespace {

constexpr size_t kValues = 32'768;
constexpr float kWeight = 0.75F;
constexpr float kFactor = -1;  // again and again, and the values stay as large
constexpr worker::Int8Dither kDither{.key = 7, .first = 1'000};

ByteView BytesOf(const Floats& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), 4 * values.size()};
}

// About normal, of many magnitudes. `factor`: of all of them.
Floats Noise(uint64_t seed, float factor) {
  Rng rng(seed);
  Floats out(kValues);
  const auto uniform = [&] { return std::ldexp(static_cast<double>(rng.Next() >> 11), -53); };
  for (float& value : out) {
    const double radius = std::sqrt(-2 * std::log(uniform() + 1e-300));
    value = factor * static_cast<float>(radius * std::cos(6.283185307179586 * uniform()));
  }
  return out;
}

// Among them ties of both formats, values below the least normal float16, and zeros of both signs.
Floats WithEdges(Floats values) {
  const auto tie = [](float value, uint32_t half) {
    return std::bit_cast<float>((std::bit_cast<uint32_t>(value) & ~(2 * half - 1)) | half);
  };
  for (size_t i = 0; i + 8 <= values.size(); i += 8) {
    values[i] = tie(values[i], 0x8000);
    values[i + 1] = tie(values[i + 1], 0x1000);
    values[i + 2] *= 1e-9F;
    values[i + 3] = std::copysign(0.0F, values[i + 3]);
  }
  return values;
}

Bytes Words(const scalar::Format& format, const Floats& values) {
  Bytes out(2 * values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t word = format.Word(values[i]);
    out[2 * i] = static_cast<uint8_t>(word);
    out[2 * i + 1] = static_cast<uint8_t>(word >> 8);
  }
  return out;
}
Floats Widened(const scalar::Format& format, const Bytes& words) {
  Floats out(words.size() / 2);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(
        format.Value(static_cast<uint16_t>(words[2 * i] | words[2 * i + 1] << 8)));
  return out;
}
Bytes Int8Chunk(const Floats& values) {
  Bytes out(worker::Int8Bytes(values.size()), 0xFF);
  auto at = out.begin() + 4;
  for (size_t begin = 0; begin < values.size(); begin += worker::kInt8Block) {
    const auto block = std::span(values).subspan(begin, worker::kInt8Block);
    const float scale = scalar::Int8Scale(block);
    const auto bits = std::bit_cast<std::array<uint8_t, 4>>(scale);
    at = std::copy(bits.begin(), bits.end(), at);
    for (const float x : block) *at++ = static_cast<uint8_t>(scalar::Int8Value(x, scale));
  }
  return out;
}
// The values of a chunk.
Floats Int8Values(const Bytes& chunk) {
  Floats out;
  for (size_t at = 4; at < chunk.size(); at += 4 + worker::kInt8Block) {
    float scale;
    std::memcpy(&scale, &chunk[at], sizeof scale);
    for (size_t i = 0; i < worker::kInt8Block; ++i)
      out.push_back(static_cast<float>(static_cast<int8_t>(chunk[at + 4 + i])) * scale);
  }
  return out;
}
// What a side has once `added` is in it.
Floats Sums(const Floats& added) {
  Floats out = Side().values;
  for (size_t i = 0; i < out.size(); ++i) out[i] = scalar::AddWeighted(kWeight, added[i], out[i]);
  return out;
}
Floats Scaled() {
  Floats out = Side().values;
  for (float& x : out) x = kFactor * x;
  return out;
}

Bytes DitheredChunk(const Floats& values) {
  Bytes out(worker::Int8Bytes(values.size()));
  worker::ToInt8Dithered(kDither, values, out);
  return out;
}

// One input, as the twin has it.
template <class Add>
void AddOne(Add add, ByteView x, Floats& acc) {
  add(std::span(&kWeight, 1), std::span(&x, 1), acc);
}

std::vector<Pair> FloatPairs(const Inputs& in) {
  const size_t n = kValues;
  return {
      {"add_float32",
       Sums(in.values),
       {},
       [&](Side& s) { AddOne(worker::AddWeightedFloat32, BytesOf(in.values), s.values); },
       [&](Side& s) { hand::AddFloat32(kWeight, BytesOf(in.values).data(), s.values.data(), n); }},
      {"add_float16",
       Sums(Widened(scalar::kHalf, in.halves)),
       {},
       [&](Side& s) { AddOne(worker::AddWeightedFloat16, in.halves, s.values); },
       [&](Side& s) { hand::AddFloat16(kWeight, in.halves.data(), s.values.data(), n); }},
      {"add_bfloat16",
       Sums(Widened(scalar::kBrain, in.brains)),
       {},
       [&](Side& s) { AddOne(worker::AddWeightedBFloat16, in.brains, s.values); },
       [&](Side& s) { hand::AddBFloat16(kWeight, in.brains.data(), s.values.data(), n); }},
      {"scale",
       Scaled(),
       {},
       [](Side& s) { worker::Scale(kFactor, s.values); },
       [](Side& s) { hand::Scale(kFactor, s.values.data(), n); }},
      {"to_float16",
       {},
       in.halves,
       [&](Side& s) { worker::ToFloat16(in.values, s.bytes); },
       [&](Side& s) { hand::ToFloat16(in.values.data(), s.bytes.data(), n); }},
      {"to_bfloat16",
       {},
       in.brains,
       [&](Side& s) { worker::ToBFloat16(in.values, s.bytes); },
       [&](Side& s) { hand::ToBFloat16(in.values.data(), s.bytes.data(), n); }},
      {"from_float16",
       Widened(scalar::kHalf, in.halves),
       {},
       [&](Side& s) { worker::FromFloat16(in.halves, s.values); },
       [&](Side& s) { hand::FromFloat16(in.halves.data(), s.values.data(), n); }},
      {"from_bfloat16",
       Widened(scalar::kBrain, in.brains),
       {},
       [&](Side& s) { worker::FromBFloat16(in.brains, s.values); },
       [&](Side& s) { hand::FromBFloat16(in.brains.data(), s.values.data(), n); }},
      {"finite_float32",
       {},
       {},
       [&](Side& s) { s.finite = worker::AllFiniteFloat32(BytesOf(in.values)); },
       [&](Side& s) { s.finite = hand::AllFiniteFloat32(BytesOf(in.values).data(), n); }},
      {"finite_float16",
       {},
       {},
       [&](Side& s) { s.finite = worker::AllFiniteFloat16(in.halves); },
       [&](Side& s) { s.finite = hand::AllFiniteFloat16(in.halves.data(), n); }},
  };
}

std::vector<Pair> Int8Pairs(const Inputs& in) {
  const size_t n = kValues;
  return {
      {"to_int8",
       {},
       in.int8,
       [&](Side& s) { worker::ToInt8(in.values, s.bytes); },
       [&](Side& s) { hand::ToInt8(in.values.data(), s.bytes.data(), n); }},
      {"to_int8_dithered",
       {},
       DitheredChunk(in.values),
       [&](Side& s) { worker::ToInt8Dithered(kDither, in.values, s.bytes); },
       [&](Side& s) {
         hand::ToInt8Dithered(kDither.key, static_cast<uint32_t>(kDither.first), in.values.data(),
                              s.bytes.data(), n);
       }},
      {"from_int8",
       Int8Values(in.int8),
       {},
       [&](Side& s) { worker::FromInt8(in.int8, s.values); },
       [&](Side& s) { hand::FromInt8(in.int8.data(), s.values.data(), n); }},
      {"add_int8",
       Sums(Int8Values(in.int8)),
       {},
       [&](Side& s) { worker::AddWeightedInt8(kWeight, in.int8, s.values); },
       [&](Side& s) { hand::AddInt8(kWeight, in.int8.data(), s.values.data(), n); }},
  };
}

}  // namespace

Side::Side() : values(Noise(2, 1)) {}

Inputs::Inputs()
    : values(WithEdges(Noise(1, 30'000))),
      halves(Words(scalar::kHalf, values)),
      brains(Words(scalar::kBrain, values)),
      int8(Int8Chunk(values)) {}

std::vector<Pair> Pairs(const Inputs& inputs) {
  std::vector<Pair> out = FloatPairs(inputs);
  for (Pair& pair : Int8Pairs(inputs)) out.push_back(std::move(pair));
  return out;
}

bool RefusesInfinity(const Inputs& inputs) {
  Floats values = inputs.values;
  Bytes halves = inputs.halves;
  values.back() = -std::numeric_limits<float>::infinity();
  halves.back() = 0xFC;  // the upper byte of minus infinity, or of a NaN
  return !worker::AllFiniteFloat32(BytesOf(values)) && !worker::AllFiniteFloat16(halves) &&
         !hand::AllFiniteFloat32(BytesOf(values).data(), kValues) &&
         !hand::AllFiniteFloat16(halves.data(), kValues);
}

bool DitherIsSmall(const Inputs& inputs) {
  const Floats back = Int8Values(DitheredChunk(inputs.values));
  for (size_t i = 0; i < kValues; ++i) {
    const auto block =
        std::span(inputs.values)
            .subspan(i / worker::kInt8Block * worker::kInt8Block, worker::kInt8Block);
    if (std::fabs(back[i] - inputs.values[i]) > scalar::Int8Scale(block) * 1.0001F) return false;
  }
  return true;
}

}  // namespace crowdsurf::bench
