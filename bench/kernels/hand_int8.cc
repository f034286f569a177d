#include <immintrin.h>

#include <bit>
#include <cstring>

#include "bench/kernels/hand.h"
#include "worker/core/vector/int8_chunk.h"

#define WITH_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

namespace crowdsurf::bench::hand {
namespace {

using worker::kInt8Block;

constexpr size_t kLanes = 16;
constexpr size_t kBlockBytes = 4 + kInt8Block;
constexpr uint32_t kMark = 0xFFFFFFFF;
constexpr uint32_t kLeastScale = 0x00800000;

WITH_AVX512 uint32_t LargestOf(const float* in) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i worst[4] = {};
  for (size_t i = 0; i < kInt8Block; i += 4 * kLanes)
    for (size_t j = 0; j < 4; ++j)
      worst[j] = _mm512_max_epi32(
          worst[j], _mm512_and_si512(_mm512_loadu_si512(in + i + kLanes * j), magnitude));
  return static_cast<uint32_t>(_mm512_reduce_max_epi32(_mm512_max_epi32(
      _mm512_max_epi32(worst[0], worst[1]), _mm512_max_epi32(worst[2], worst[3]))));
}

// The bits of the scale of a block of finite values; 0: all of them are zeros.
WITH_AVX512 uint32_t ScaleOf(const float* in) {
  const float scale = std::bit_cast<float>(LargestOf(in)) / 127.0F;
  const uint32_t bits = std::bit_cast<uint32_t>(scale);
  return bits < kLeastScale ? 0 : (bits + 127) & ~127U;
}

// Writes the scale of a block, and where it is 0 the rest as well.
WITH_AVX512 uint32_t BeginBlock(const float* in, uint8_t* at) {
  const uint32_t bits = ScaleOf(in);
  std::memcpy(at, &bits, sizeof bits);
  if (bits == 0) std::memset(at + sizeof bits, 0, kInt8Block);
  return bits;
}

WITH_AVX512 void StoreBytes(__m512 ratio, uint8_t* out) {
  const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(ratio));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
}

// In (-1/2, 1/2), a hash of the places and the key (int8_chunk.cc).
WITH_AVX512 __m512 DitherOf(__m512i places, uint32_t key) {
  const auto number = [](uint32_t bits) { return static_cast<int>(bits); };
  __m512i h = _mm512_add_epi32(_mm512_mullo_epi32(places, _mm512_set1_epi32(number(0x9E3779B9))),
                               _mm512_set1_epi32(number(key * 0x85EBCA6B)));
  h = _mm512_xor_si512(h, _mm512_srli_epi32(h, 16));
  h = _mm512_mullo_epi32(h, _mm512_set1_epi32(0x7FEB352D));
  h = _mm512_xor_si512(h, _mm512_srli_epi32(h, 15));
  h = _mm512_mullo_epi32(h, _mm512_set1_epi32(number(0x846CA68B)));
  h = _mm512_srli_epi32(h, 16);
  const __m512 unit = _mm512_mul_ps(_mm512_cvtepi32_ps(h), _mm512_set1_ps(0x1p-16F));
  return _mm512_add_ps(unit, _mm512_set1_ps(-0.5F + 0x1p-17F));
}

WITH_AVX512 __m512 LoadValues(const uint8_t* bytes, __m512 scale) {
  const __m128i q = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)), scale);
}
WITH_AVX512 __m512 ReadScale(const uint8_t* from) {
  float scale;
  std::memcpy(&scale, from, sizeof scale);
  return _mm512_set1_ps(scale);
}

}  // namespace

WITH_AVX512 void ToInt8(const float* in, uint8_t* out, size_t count) {
  std::memcpy(out, &kMark, sizeof kMark);
  uint8_t* at = out + 4;
  for (size_t begin = 0; begin < count; begin += kInt8Block, at += kBlockBytes) {
    const uint32_t bits = BeginBlock(in + begin, at);
    if (bits == 0) continue;
    const __m512 scale = _mm512_set1_ps(std::bit_cast<float>(bits));
    for (size_t i = 0; i < kInt8Block; i += kLanes)
      StoreBytes(_mm512_div_ps(_mm512_loadu_ps(in + begin + i), scale), at + 4 + i);
  }
}

WITH_AVX512 void ToInt8Dithered(uint32_t key, uint32_t first, const float* in, uint8_t* out,
                                size_t count) {
  std::memcpy(out, &kMark, sizeof kMark);
  uint8_t* at = out + 4;
  const __m512i step = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  for (size_t begin = 0; begin < count; begin += kInt8Block, at += kBlockBytes) {
    const uint32_t bits = BeginBlock(in + begin, at);
    if (bits == 0) continue;
    const __m512 scale = _mm512_set1_ps(std::bit_cast<float>(bits));
    for (size_t i = 0; i < kInt8Block; i += kLanes) {
      const __m512 ratio = _mm512_div_ps(_mm512_loadu_ps(in + begin + i), scale);
      const auto place = static_cast<int>(first + static_cast<uint32_t>(begin + i));
      const __m512 dither = DitherOf(_mm512_add_epi32(step, _mm512_set1_epi32(place)), key);
      const __mmask16 inner =
          _mm512_cmp_ps_mask(_mm512_abs_ps(ratio), _mm512_set1_ps(126.5F), _CMP_LE_OQ);
      StoreBytes(_mm512_mask_add_ps(ratio, inner, ratio, dither), at + 4 + i);
    }
  }
}

WITH_AVX512 void FromInt8(const uint8_t* in, float* out, size_t count) {
  const uint8_t* at = in + 4;
  for (size_t begin = 0; begin < count; begin += kInt8Block, at += kBlockBytes) {
    const __m512 scale = ReadScale(at);
    for (size_t i = 0; i < kInt8Block; i += 4 * kLanes)
      for (size_t j = i; j < i + 4 * kLanes; j += kLanes)
        _mm512_storeu_ps(out + begin + j, LoadValues(at + 4 + j, scale));
  }
}
WITH_AVX512 void AddInt8(float weight, const uint8_t* in, float* acc, size_t count) {
  const __m512 w = _mm512_set1_ps(weight);
  const uint8_t* at = in + 4;
  for (size_t begin = 0; begin < count; begin += kInt8Block, at += kBlockBytes) {
    const __m512 scale = ReadScale(at);
    for (size_t i = 0; i < kInt8Block; i += 4 * kLanes)
      for (size_t j = i; j < i + 4 * kLanes; j += kLanes) {
        float* sum = acc + begin + j;
        const __m512 product = _mm512_mul_ps(w, LoadValues(at + 4 + j, scale));
        _mm512_storeu_ps(sum, _mm512_add_ps(_mm512_loadu_ps(sum), product));
      }
  }
}

}  // namespace crowdsurf::bench::hand
