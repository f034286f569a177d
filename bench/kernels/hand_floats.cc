#include <immintrin.h>

#include "bench/kernels/hand.h"

#define WITH_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c")))

namespace crowdsurf::bench::hand {
namespace {

constexpr size_t kLanes = 16;
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

WITH_AVX512 __m512 LoadHalf(const uint8_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
WITH_AVX512 __m512 LoadBrain(const uint8_t* from) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}
WITH_AVX512 void AddOne(__m512 weight, __m512 x, float* acc) {
  _mm512_storeu_ps(acc, _mm512_add_ps(_mm512_loadu_ps(acc), _mm512_mul_ps(weight, x)));
}
WITH_AVX512 __m512i Magnitude(__m512 v) {
  return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7FFFFFFF));
}

// Infinity as it is, a NaN as the quiet one; others from `words`.
WITH_AVX512 __attribute__((noinline)) __m256i Special(__m512 v, __m256i words, int16_t infinity,
                                                      int16_t quiet) {
  const __m512i bits = Magnitude(v);
  const __m512i all_ones = _mm512_set1_epi32(0x7F800000);
  const __m256i sign =
      _mm256_and_si256(_mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(v), 16)),
                       _mm256_set1_epi16(static_cast<int16_t>(0x8000)));
  words = _mm256_mask_mov_epi16(words, _mm512_cmpeq_epi32_mask(bits, all_ones),
                                _mm256_or_si256(sign, _mm256_set1_epi16(infinity)));
  return _mm256_mask_mov_epi16(words, _mm512_cmpgt_epi32_mask(bits, all_ones),
                               _mm256_or_si256(sign, _mm256_set1_epi16(quiet)));
}

WITH_AVX512 void StoreHalf(__m512 v, uint8_t* out) {
  const __m512 most = _mm512_set1_ps(65504.0F);
  const __m512 least = _mm512_set1_ps(-65504.0F);
  __m256i words = _mm512_cvtps_ph(_mm512_min_ps(_mm512_max_ps(v, least), most), kNearest);
  const __mmask16 rare = _mm512_cmpge_epi32_mask(Magnitude(v), _mm512_set1_epi32(0x7F800000));
  if (rare != 0) [[unlikely]]
    words = Special(v, words, 0x7C00, 0x7E00);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), words);
}

WITH_AVX512 __attribute__((noinline)) __m256i LargeBrain(__m512 v, __m256i words) {
  const __m256i sign = _mm256_and_si256(words, _mm256_set1_epi16(static_cast<int16_t>(0x8000)));
  const __mmask16 large = _mm512_cmpge_epi32_mask(Magnitude(v), _mm512_set1_epi32(0x7F7F8000));
  words = _mm256_mask_mov_epi16(words, large, _mm256_or_si256(sign, _mm256_set1_epi16(0x7F7F)));
  return Special(v, words, 0x7F80, 0x7FC0);
}
WITH_AVX512 void StoreBrain(__m512 v, uint8_t* out) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  __m256i words = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
  const __mmask16 rare = _mm512_cmpge_epi32_mask(Magnitude(v), _mm512_set1_epi32(0x7F7F8000));
  if (rare != 0) [[unlikely]]
    words = LargeBrain(v, words);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), words);
}

}  // namespace

bool Works() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

WITH_AVX512 void AddFloat32(float weight, const uint8_t* x, float* acc, size_t count) {
  const __m512 w = _mm512_set1_ps(weight);
  for (size_t i = 0; i < count; i += 4 * kLanes)
    for (size_t j = i; j < i + 4 * kLanes; j += kLanes)
      AddOne(w, _mm512_loadu_ps(x + 4 * j), acc + j);
}
WITH_AVX512 void AddFloat16(float weight, const uint8_t* x, float* acc, size_t count) {
  const __m512 w = _mm512_set1_ps(weight);
  for (size_t i = 0; i < count; i += 4 * kLanes)
    for (size_t j = i; j < i + 4 * kLanes; j += kLanes) AddOne(w, LoadHalf(x + 2 * j), acc + j);
}
WITH_AVX512 void AddBFloat16(float weight, const uint8_t* x, float* acc, size_t count) {
  const __m512 w = _mm512_set1_ps(weight);
  for (size_t i = 0; i < count; i += 4 * kLanes)
    for (size_t j = i; j < i + 4 * kLanes; j += kLanes) AddOne(w, LoadBrain(x + 2 * j), acc + j);
}
WITH_AVX512 void Scale(float factor, float* x, size_t count) {
  const __m512 f = _mm512_set1_ps(factor);
  for (size_t i = 0; i < count; i += 4 * kLanes)
    for (size_t j = i; j < i + 4 * kLanes; j += kLanes)
      _mm512_storeu_ps(x + j, _mm512_mul_ps(f, _mm512_loadu_ps(x + j)));
}

WITH_AVX512 void ToFloat16(const float* in, uint8_t* out, size_t count) {
  for (size_t i = 0; i < count; i += 4 * kLanes)
    for (size_t j = i; j < i + 4 * kLanes; j += kLanes)
      StoreHalf(_mm512_loadu_ps(in + j), out + 2 * j);
}
WITH_AVX512 void ToBFloat16(const float* in, uint8_t* out, size_t count) {
  for (size_t i = 0; i < count; i += 4 * kLanes)
    for (size_t j = i; j < i + 4 * kLanes; j += kLanes)
      StoreBrain(_mm512_loadu_ps(in + j), out + 2 * j);
}
WITH_AVX512 void FromFloat16(const uint8_t* in, float* out, size_t count) {
  for (size_t i = 0; i < count; i += 4 * kLanes)
    for (size_t j = i; j < i + 4 * kLanes; j += kLanes)
      _mm512_storeu_ps(out + j, LoadHalf(in + 2 * j));
}
WITH_AVX512 void FromBFloat16(const uint8_t* in, float* out, size_t count) {
  for (size_t i = 0; i < count; i += 4 * kLanes)
    for (size_t j = i; j < i + 4 * kLanes; j += kLanes)
      _mm512_storeu_ps(out + j, LoadBrain(in + 2 * j));
}

WITH_AVX512 bool AllFiniteFloat32(const uint8_t* x, size_t count) {
  constexpr int kNanOrInfinite = 0x01 | 0x08 | 0x10 | 0x80;
  unsigned bad = 0;
  for (size_t i = 0; i < count; i += 4 * kLanes)
    for (size_t j = i; j < i + 4 * kLanes; j += kLanes)
      bad |= _mm512_fpclass_ps_mask(_mm512_loadu_ps(x + 4 * j), kNanOrInfinite);
  return bad == 0;
}
WITH_AVX512 bool AllFiniteFloat16(const uint8_t* x, size_t count) {
  const __m512i exponent = _mm512_set1_epi16(0x7C00);
  __m512i worst = _mm512_setzero_si512();
  for (size_t i = 0; i < count; i += 2 * kLanes) {
    const __m512i words = _mm512_loadu_si512(x + 2 * i);
    worst = _mm512_max_epu16(worst, _mm512_and_si512(words, exponent));
  }
  return _mm512_cmpeq_epi16_mask(worst, exponent) == 0;
}

}  // namespace crowdsurf::bench::hand
