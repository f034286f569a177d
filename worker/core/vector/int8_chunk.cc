#include "worker/core/vector/int8_chunk.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/core/vector/int8_chunk.cc"
#include <hwy/foreach_target.h>  // NOLINT: compiles the rest of this file once per instruction set
#include <hwy/highway.h>

#include "worker/core/vector/float_lanes.inc"

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

HWY_BEFORE_NAMESPACE();
namespace crowdsurf::worker {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr uint32_t kInt8Mark = 0xFFFFFFFFu;
constexpr uint32_t kLeastScale = 0x00800000u;  // the least normal float: products stay normal
// The largest with 17 bits whose 127-fold is finite.
constexpr uint32_t kLargestScale = 0x7C010200u;
constexpr uint32_t kDroppedBits = 0x7Fu;  // of 24 significant bits, 17 stay

// Of a block whose largest magnitude has these bits; 0: all its values are zero.
inline uint32_t ScaleOf(uint32_t largest) {
  const uint32_t scale = std::bit_cast<uint32_t>(std::bit_cast<float>(largest) / 127.0f);
  if (scale < kLeastScale) return 0;
  return std::min((scale + kDroppedBits) & ~kDroppedBits, kLargestScale);
}

// The bits of |v| as finite values have them: magnitudes are ordered as signed integers.
template <class D>
hn::VFromD<hn::RebindToSigned<D>> Magnitude(D df, hn::VFromD<D> v) {
  const hn::RebindToSigned<D> di;
  (void)df;
  const auto bits = hn::And(hn::BitCast(di, v), hn::Set(di, 0x7FFFFFFF));
  const auto finite = hn::Min(bits, hn::Set(di, 0x7F7FFFFF));
  return hn::IfThenElse(hn::Gt(bits, hn::Set(di, 0x7F800000)), hn::Zero(di), finite);
}

// How the values of a block are read: as they are where all of them are finite, or made finite.
struct AsTheyAre {
  template <class D>
  static hn::VFromD<hn::RebindToSigned<D>> Bits(D df, hn::VFromD<D> v) {
    const hn::RebindToSigned<D> di;
    (void)df;
    return hn::And(hn::BitCast(di, v), hn::Set(di, 0x7FFFFFFF));
  }
  template <class D>
  static hn::VFromD<D> Value(D, hn::VFromD<D> v) {
    return v;
  }
};
struct MadeFinite {
  template <class D>
  static hn::VFromD<hn::RebindToSigned<D>> Bits(D df, hn::VFromD<D> v) {
    return Magnitude(df, v);
  }
  template <class D>
  static hn::VFromD<D> Value(D df, hn::VFromD<D> v) {
    const hn::RebindToSigned<D> di;
    const auto sign = hn::And(hn::BitCast(di, v), hn::Set(di, INT32_MIN));
    return hn::BitCast(df, hn::Or(Magnitude(df, v), sign));
  }
};

// The bits of the largest magnitude. As they are, it is above kMostFinite where one is not finite.
constexpr uint32_t kMostFinite = 0x7F7FFFFFu;
template <class Read>
HWY_INLINE uint32_t LargestOf(Read, const float* in, size_t count) {
  const hn::ScalableTag<float> df;
  const hn::ScalableTag<int32_t> di;
  const hn::CappedTag<float, 1> one;
  auto worst = hn::Zero(di);
  size_t i = 0;
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df))
    worst = hn::Max(worst, Read::Bits(df, hn::LoadU(df, in + i)));
  int32_t largest = hn::GetLane(hn::MaxOfLanes(di, worst));
  for (; i < count; ++i)
    largest = std::max(largest, hn::GetLane(Read::Bits(one, hn::LoadU(one, in + i))));
  return static_cast<uint32_t>(largest);
}

// A number of the place and the key, in (-1/2, 1/2): 16 bits of lowbias32 (Wellons 2018). So few,
// and centred, that its sum with any q is exact: what is on a step stays there.
template <class D>
hn::VFromD<D> DitherOf(D d, uint32_t key, uint32_t place) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto places = hn::Add(hn::Iota(du, 0), hn::Set(du, place));
  auto h = hn::Add(hn::Mul(places, hn::Set(du, 0x9E3779B9u)), hn::Set(du, key * 0x85EBCA6Bu));
  h = hn::Xor(h, hn::ShiftRight<16>(h));
  h = hn::Mul(h, hn::Set(du, 0x7FEB352Du));
  h = hn::Xor(h, hn::ShiftRight<15>(h));
  h = hn::Mul(h, hn::Set(du, 0x846CA68Bu));
  h = hn::ShiftRight<16>(h);
  const auto unit = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, h)), hn::Set(d, 0x1p-16f));
  return hn::Add(unit, hn::Set(d, -0.5f + 0x1p-17f));
}

struct Nearest {
  template <class D>
  hn::VFromD<D> operator()(D, hn::VFromD<D> ratio, size_t) const {
    return ratio;
  }
};
struct Dithered {
  uint32_t key, first;
  template <class D>
  hn::VFromD<D> operator()(D d, hn::VFromD<D> ratio, size_t i) const {
    const auto moved = hn::Add(ratio, DitherOf(d, key, first + static_cast<uint32_t>(i)));
    // The largest of a block stays at 127, or its bytes would not be sound.
    return hn::IfThenElse(hn::Gt(hn::Abs(ratio), hn::Set(d, 126.5f)), ratio, moved);
  }
};

template <class Read, class Move>
HWY_INLINE void Quantize(Read, const float* in, float scale, const Move& move, uint8_t* out,
                         size_t count) {
  ForEach(count, [&](auto d, size_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<uint8_t, decltype(d)> d8;
    const auto value = Read::Value(d, hn::LoadU(d, in + i));
    // 1.5 2^23 puts the binary point behind a float's last bit, and the addition rounds.
    const auto magic = hn::Set(d, 12582912.0f);
    const auto rounded = hn::Add(move(d, hn::Div(value, hn::Set(d, scale)), i), magic);
    const auto q = hn::Sub(hn::BitCast(du, rounded), hn::BitCast(du, magic));
    hn::StoreU(hn::TruncateTo(d8, q), d8, out + i);
  });
}

// q s of one vector.
template <class D>
hn::VFromD<D> LoadValues(D d, const int8_t* q, float scale) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<int8_t, D> d8;
  return hn::Mul(hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, q))), hn::Set(d, scale));
}

// Calls body(scale's bytes, q, first value, values) for each block of a chunk.
template <class Block, class Body>
HWY_INLINE void ForEachBlock(Block* chunk, size_t count, Body body) {
  Block* at = chunk + 4;
  for (size_t begin = 0; begin < count; begin += kInt8Block) {
    const size_t values = std::min(kInt8Block, count - begin);
    body(at, at + 4, begin, values);
    at += 4 + values;
  }
}

inline float ReadScale(const uint8_t* from) {
  float scale;
  std::memcpy(&scale, from, sizeof scale);
  return scale;
}

// A block that begins with its scale.
template <class Read, class Move>
HWY_INLINE void EncodeBlock(Read read, const float* in, uint32_t largest, const Move& move,
                            uint8_t* scale, uint8_t* q, size_t count) {
  const uint32_t bits = ScaleOf(largest);
  std::memcpy(scale, &bits, sizeof bits);
  if (bits == 0) return (void)std::memset(q, 0, count);
  Quantize(read, in, std::bit_cast<float>(bits), move, q, count);
}

template <class MoveAt>
HWY_INLINE void Encode(const float* in, uint8_t* out, size_t count, const MoveAt& move_at) {
  std::memcpy(out, &kInt8Mark, sizeof kInt8Mark);
  ForEachBlock(out, count, [&](uint8_t* scale, uint8_t* q, size_t begin, size_t values) HWY_ATTR {
    const float* const block = in + begin;
    const uint32_t largest = LargestOf(AsTheyAre(), block, values);
    if (HWY_LIKELY(largest <= kMostFinite))
      return EncodeBlock(AsTheyAre(), block, largest, move_at(begin), scale, q, values);
    EncodeBlock(MadeFinite(), block, LargestOf(MadeFinite(), block, values), move_at(begin), scale,
                q, values);
  });
  if (count % 2 == 1) out[Int8Bytes(count) - 1] = 0;
}

void EncodeInt8(const float* in, uint8_t* out, size_t count) {
  Encode(in, out, count, [](size_t) HWY_ATTR { return Nearest(); });
}
void EncodeDithered(const float* in, uint8_t* out, size_t count, uint32_t key, uint64_t first) {
  Encode(in, out, count, [&](size_t begin) HWY_ATTR {
    return Dithered{key, static_cast<uint32_t>(first + begin)};
  });
}

void DecodeInt8(const uint8_t* in, float* out, size_t count) {
  ForEachBlock(in, count,
               [&](const uint8_t* at, const uint8_t* bytes, size_t begin, size_t values) HWY_ATTR {
                 const float scale = ReadScale(at);
                 const auto* q = reinterpret_cast<const int8_t*>(bytes);
                 ForEach(values, [&](auto d, size_t i) HWY_ATTR {
                   hn::StoreU(LoadValues(d, q + i, scale), d, out + begin + i);
                 });
               });
}

void AddInt8(float weight, const uint8_t* in, float* acc, size_t count) {
  ForEachBlock(in, count,
               [&](const uint8_t* at, const uint8_t* bytes, size_t begin, size_t values) HWY_ATTR {
                 const float scale = ReadScale(at);
                 const auto* q = reinterpret_cast<const int8_t*>(bytes);
                 ForEach(values, [&](auto d, size_t i) HWY_ATTR {
                   const auto product = hn::Mul(hn::Set(d, weight), LoadValues(d, q + i, scale));
                   float* sum = acc + begin + i;
                   hn::StoreU(hn::Add(hn::LoadU(d, sum), product), d, sum);
                 });
               });
}

// With a scale the values reach 127 on one side or the other, and none is -128;
// without they are zeros.
inline bool ValuesFit(uint32_t scale, const int8_t* q, size_t count) {
  const hn::ScalableTag<int8_t> d;
  auto low = hn::Zero(d);
  auto high = hn::Zero(d);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, q + i);
    low = hn::Min(low, v);
    high = hn::Max(high, v);
  }
  HWY_ALIGN int8_t lows[HWY_MAX_BYTES];
  HWY_ALIGN int8_t highs[HWY_MAX_BYTES];
  hn::Store(low, d, lows);
  hn::Store(high, d, highs);
  int least = std::min<int>(INT8_MAX, *std::min_element(lows, lows + hn::Lanes(d)));
  int most = std::max<int>(INT8_MIN, *std::max_element(highs, highs + hn::Lanes(d)));
  for (; i < count; ++i) {
    least = std::min<int>(least, q[i]);
    most = std::max<int>(most, q[i]);
  }
  if (scale == 0) return least == 0 && most == 0;
  return least >= -127 && (least == -127 || most == 127);
}

bool SoundInt8(const uint8_t* in, size_t count) {
  uint32_t mark;
  std::memcpy(&mark, in, sizeof mark);
  bool sound = mark == kInt8Mark && (count % 2 == 0 || in[Int8Bytes(count) - 1] == 0);
  ForEachBlock(in, count,
               [&](const uint8_t* at, const uint8_t* bytes, size_t, size_t values) HWY_ATTR {
                 if (!sound) return;
                 const uint32_t scale = std::bit_cast<uint32_t>(ReadScale(at));
                 const bool fits = scale == 0 || (scale >= kLeastScale && scale <= kLargestScale &&
                                                  (scale & kDroppedBits) == 0);
                 sound = fits && ValuesFit(scale, reinterpret_cast<const int8_t*>(bytes), values);
               });
  return sound;
}

}  // namespace HWY_NAMESPACE
}  // namespace crowdsurf::worker
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crowdsurf::worker {

HWY_EXPORT(EncodeInt8);
HWY_EXPORT(EncodeDithered);
HWY_EXPORT(DecodeInt8);
HWY_EXPORT(AddInt8);
HWY_EXPORT(SoundInt8);

void ToInt8(std::span<const float> in, std::span<uint8_t> out) {
  CHECK_EQ(out.size(), Int8Bytes(in.size()));
  if (in.empty()) return;
  HWY_DYNAMIC_DISPATCH(EncodeInt8)(in.data(), out.data(), in.size());
}
void ToInt8Dithered(const Int8Dither& dither, std::span<const float> in, std::span<uint8_t> out) {
  CHECK_EQ(out.size(), Int8Bytes(in.size()));
  if (in.empty()) return;
  HWY_DYNAMIC_DISPATCH(EncodeDithered)
  (in.data(), out.data(), in.size(), dither.key, dither.first);
}
void FromInt8(ByteView in, std::span<float> out) {
  CHECK_EQ(in.size(), Int8Bytes(out.size()));
  if (out.empty()) return;
  HWY_DYNAMIC_DISPATCH(DecodeInt8)(in.data(), out.data(), out.size());
}
void AddWeightedInt8(float weight, ByteView in, std::span<float> acc) {
  CHECK_EQ(in.size(), Int8Bytes(acc.size()));
  if (acc.empty()) return;
  HWY_DYNAMIC_DISPATCH(AddInt8)(weight, in.data(), acc.data(), acc.size());
}
bool Int8IsSound(ByteView in, size_t count) {
  if (in.size() != Int8Bytes(count)) return false;
  return count == 0 || HWY_DYNAMIC_DISPATCH(SoundInt8)(in.data(), count);
}

}  // namespace crowdsurf::worker
#endif  // HWY_ONCE
