#include "worker/core/vector/kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/core/vector/kernels.cc"
#include <hwy/foreach_target.h>  // NOLINT: compiles the rest of this file once per instruction set
#include <hwy/highway.h>

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

#ifndef CROWDSURF_KERNELS_WEIGHTED  // the rest of this file is compiled more than once
#define CROWDSURF_KERNELS_WEIGHTED
namespace crowdsurf::worker {

// Inputs that are read side by side. More have no effect on memory, and from some 30 on the
// processor fetches none of them ahead.
inline constexpr size_t kAtOnce = 8;

struct Weighted {
  size_t inputs = 0;
  std::array<float, kAtOnce> weights;
  std::array<const uint8_t*, kAtOnce> x;
};

}  // namespace crowdsurf::worker
#endif

HWY_BEFORE_NAMESPACE();
namespace crowdsurf::worker {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads and stores go through bytes, so that any alignment is defined.
#if HWY_TARGET == HWY_SCALAR
template <class D>
hn::VFromD<D> LoadBytes(D d, const uint8_t* from) {
  hn::TFromD<D> value;
  std::memcpy(&value, from, sizeof value);
  return hn::Set(d, value);
}
template <class D>
void StoreBytes(D, hn::VFromD<D> v, uint8_t* to) {
  const hn::TFromD<D> value = hn::GetLane(v);
  std::memcpy(to, &value, sizeof value);
}
#else
template <class D>
hn::VFromD<D> LoadBytes(D d, const uint8_t* HWY_RESTRICT from) {
  const hn::Repartition<uint8_t, D> bytes;
  return hn::BitCast(d, hn::LoadU(bytes, from));
}
template <class D>
void StoreBytes(D, hn::VFromD<D> v, uint8_t* HWY_RESTRICT to) {
  const hn::Repartition<uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, to);
}
#endif

// F16C has both conversions of float16, and rounds to nearest even. Targets below AVX2 do without:
// there Highway 1.0.3 truncates. All of them give the same bits (tests/unit/worker_core/vector).
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
template <class D>
hn::VFromD<D> WidenFloat16(D df, hn::VFromD<hn::Rebind<uint16_t, D>> half) {
  return hn::PromoteTo(df, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), half));
}

template <class D>
auto NarrowToFloat16(D df, hn::VFromD<D> v) {
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<hwy::float16_t, D> df16;
  const auto infinity = hn::BitCast(df, hn::Set(hn::RebindToUnsigned<D>(), 0x7F800000u));
  const auto magnitude = hn::Abs(v);
  // What rounds past the largest finite value is held there.
  const auto most = hn::Set(df, 65504.0F);
  const auto held = hn::Min(hn::Max(v, hn::Neg(most)), most);
  const auto finite = hn::Lt(magnitude, infinity);
  if (HWY_LIKELY(hn::AllTrue(df, finite))) return hn::BitCast(du16, hn::DemoteTo(df16, held));
  // A NaN becomes the quiet one.
  const auto nan = hn::BitCast(df, hn::Set(hn::RebindToUnsigned<D>(), 0x7FC00000u));
  const auto special = hn::IfThenElse(hn::Eq(magnitude, infinity), infinity, nan);
  const auto out = hn::IfThenElse(finite, held, hn::CopySign(special, v));
  return hn::BitCast(du16, hn::DemoteTo(df16, out));
}
#else
// Giesen's widening: shift the fields into place, re-bias, and let one float subtraction normalise
// a subnormal; exact.
template <class D>
hn::VFromD<D> WidenFloat16(D df, hn::VFromD<hn::Rebind<uint16_t, D>> half) {
  const hn::RebindToUnsigned<D> du;
  const auto h = hn::PromoteTo(du, half);
  const auto sign = hn::ShiftLeft<16>(hn::And(h, hn::Set(du, 0x8000u)));
  const auto fields = hn::ShiftLeft<13>(hn::And(h, hn::Set(du, 0x7FFFu)));
  const auto exponent = hn::And(fields, hn::Set(du, 0x7C00u << 13));
  const auto rebias = hn::Set(du, (127u - 15u) << 23);
  const auto normal = hn::Add(fields, rebias);
  const auto special = hn::Add(normal, hn::Set(du, (128u - 16u) << 23));
  const auto magic = hn::BitCast(df, hn::Set(du, 113u << 23));
  const auto subnormal =
      hn::BitCast(du, hn::Sub(hn::BitCast(df, hn::Add(normal, hn::Set(du, 1u << 23))), magic));
  auto out = hn::IfThenElse(hn::Eq(exponent, hn::Set(du, 0x7C00u << 13)), special, normal);
  out = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), subnormal, out);
  return hn::BitCast(df, hn::Or(out, sign));
}

template <class D>
auto NarrowToFloat16(D df, hn::VFromD<D> v) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> du16;
  const auto bits = hn::BitCast(du, v);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(du, 0x80000000u)));
  // Normal: round the 13 dropped bits to even by adding half less one and the kept low bit. What
  // rounds past the largest finite value is held there.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto rebiased = hn::Sub(hn::Add(hn::Add(magnitude, hn::Set(du, 0xFFFu)), odd),
                                hn::Set(du, (127u - 15u) << 23));
  const auto normal = hn::Min(hn::ShiftRight<13>(rebiased), hn::Set(du, 0x7BFFu));
  // Subnormal: a float addition puts the binary point where the last bit is, and rounds.
  const auto magic = hn::Set(du, ((127u - 15u) + (23u - 10u) + 1u) << 23);
  const auto subnormal =
      hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, magic))), magic);
  // Infinity stays; a NaN becomes the quiet one.
  const auto special = hn::IfThenElse(hn::Eq(magnitude, hn::Set(du, 0x7F800000u)),
                                      hn::Set(du, 0x7C00u), hn::Set(du, 0x7E00u));
  const auto below = [&](uint32_t bound) {  // magnitudes are positive as signed integers
    return hn::RebindMask(
        du, hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, static_cast<int32_t>(bound))));
  };
  auto out = hn::IfThenElse(below(113u << 23), subnormal, normal);
  out = hn::IfThenElse(below(0x7F800000u), out, special);
  return hn::DemoteTo(du16, hn::BitCast(di, hn::Or(out, sign)));
}
#endif

// bfloat16 is the upper half of a float32.
template <class D>
hn::VFromD<D> WidenBFloat16(D df, hn::VFromD<hn::Rebind<uint16_t, D>> half) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, half)));
}

// As the integer NarrowToFloat16, with 16 dropped bits. The exponents are those of float32, so
// subnormals need nothing.
template <class D>
auto NarrowLargeToBFloat16(D df, hn::VFromD<D> v) {
  (void)df;
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> du16;
  const auto bits = hn::BitCast(du, v);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(du, 0x80000000u)));
  const auto odd = hn::And(hn::ShiftRight<16>(magnitude), hn::Set(du, 1u));
  const auto finite =
      hn::Min(hn::ShiftRight<16>(hn::Add(hn::Add(magnitude, hn::Set(du, 0x7FFFu)), odd)),
              hn::Set(du, 0x7F7Fu));
  const auto special = hn::IfThenElse(hn::Eq(magnitude, hn::Set(du, 0x7F800000u)),
                                      hn::Set(du, 0x7F80u), hn::Set(du, 0x7FC0u));
  const auto is_finite =
      hn::RebindMask(du, hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, 0x7F800000)));
  const auto out = hn::IfThenElse(is_finite, finite, special);
  return hn::DemoteTo(du16, hn::BitCast(di, hn::Or(out, sign)));
}

template <class D>
auto NarrowToBFloat16(D df, hn::VFromD<D> v) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> du16;
  const auto bits = hn::BitCast(du, v);
  const auto magnitude = hn::BitCast(di, hn::And(bits, hn::Set(du, 0x7FFFFFFFu)));
  // None rounds past the largest finite value, nor is one infinite or a NaN: nothing is carried
  // into the sign.
  if (HWY_LIKELY(hn::AllTrue(di, hn::Lt(magnitude, hn::Set(di, 0x7F7F8000))))) {
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd);
    return hn::DemoteTo(du16, hn::BitCast(di, hn::ShiftRight<16>(rounded)));
  }
  return NarrowLargeToBFloat16(df, v);
}

struct AsFloat32 {
  static constexpr size_t kBytes = 4;
  template <class D>
  static hn::VFromD<D> Load(D df, const uint8_t* from) {
    return LoadBytes(df, from);
  }
};
struct AsFloat16 {
  static constexpr size_t kBytes = 2;
  template <class D>
  static hn::VFromD<D> Load(D df, const uint8_t* from) {
    return WidenFloat16(df, LoadBytes(hn::Rebind<uint16_t, D>(), from));
  }
  template <class D>
  static void Store(D df, hn::VFromD<D> v, uint8_t* to) {
    StoreBytes(hn::Rebind<uint16_t, D>(), NarrowToFloat16(df, v), to);
  }
};
struct AsBFloat16 {
  static constexpr size_t kBytes = 2;
  template <class D>
  static hn::VFromD<D> Load(D df, const uint8_t* from) {
    return WidenBFloat16(df, LoadBytes(hn::Rebind<uint16_t, D>(), from));
  }
  template <class D>
  static void Store(D df, hn::VFromD<D> v, uint8_t* to) {
    StoreBytes(hn::Rebind<uint16_t, D>(), NarrowToBFloat16(df, v), to);
  }
};

// Calls body(tag, index) over whole vectors, then element by element: the tail runs the same
// operations on one lane.
template <class Body>
HWY_INLINE void ForEach(size_t count, Body body) {
  const hn::ScalableTag<float> whole;
  const hn::CappedTag<float, 1> one;
  size_t i = 0;
  for (; i + hn::Lanes(whole) <= count; i += hn::Lanes(whole)) body(whole, i);
  for (; i < count; ++i) body(one, i);
}

// Multiplied, then added, never fused: all machines get the same bits (docs/data-plane.md).
template <class Format>
HWY_INLINE void AddWeighted(const Weighted& in, float* acc, size_t count) {
  ForEach(count, [&](auto d, size_t i) HWY_ATTR {
    auto sum = hn::LoadU(d, acc + i);
    for (size_t k = 0; k < in.inputs; ++k) {
      const auto x = Format::Load(d, in.x[k] + i * Format::kBytes);
      sum = hn::Add(sum, hn::Mul(hn::Set(d, in.weights[k]), x));
    }
    hn::StoreU(sum, d, acc + i);
  });
}
template <class Format>
HWY_INLINE void Narrow(const float* in, uint8_t* out, size_t count) {
  ForEach(count, [&](auto d, size_t i) HWY_ATTR {
    Format::Store(d, hn::LoadU(d, in + i), out + i * Format::kBytes);
  });
}
template <class Format>
HWY_INLINE void Widen(const uint8_t* in, float* out, size_t count) {
  ForEach(count, [&](auto d, size_t i) HWY_ATTR {
    hn::StoreU(Format::Load(d, in + i * Format::kBytes), d, out + i);
  });
}

void AddFloat32(const Weighted& in, float* acc, size_t n) { AddWeighted<AsFloat32>(in, acc, n); }
void AddFloat16(const Weighted& in, float* acc, size_t n) { AddWeighted<AsFloat16>(in, acc, n); }
void AddBFloat16(const Weighted& in, float* acc, size_t n) { AddWeighted<AsBFloat16>(in, acc, n); }
void NarrowFloat16(const float* in, uint8_t* out, size_t n) { Narrow<AsFloat16>(in, out, n); }
void NarrowBFloat16(const float* in, uint8_t* out, size_t n) { Narrow<AsBFloat16>(in, out, n); }
void WidenFloat16s(const uint8_t* in, float* out, size_t n) { Widen<AsFloat16>(in, out, n); }
void WidenBFloat16s(const uint8_t* in, float* out, size_t n) { Widen<AsBFloat16>(in, out, n); }

void ScaleAll(float factor, float* x, size_t n) {
  ForEach(n, [&](auto d, size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::Set(d, factor), hn::LoadU(d, x + i)), d, x + i);
  });
}

void ChangeWithout(const float* x, const float* base, float* out, size_t n) {
  ForEach(n, [&](auto d, size_t i) HWY_ATTR {
    hn::StoreU(hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, base + i)), d, out + i);
  });
}
void ChangeWith(const float* x, const float* base, const float* rest, float* out, size_t n) {
  ForEach(n, [&](auto d, size_t i) HWY_ATTR {
    const auto change = hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, base + i));
    hn::StoreU(hn::Add(change, hn::LoadU(d, rest + i)), d, out + i);
  });
}
void LeaveFinite(const float* change, const float* travelled, float* rest, size_t n) {
  ForEach(n, [&](auto d, size_t i) HWY_ATTR {
    const auto left = hn::Sub(hn::LoadU(d, change + i), hn::LoadU(d, travelled + i));
    hn::StoreU(hn::IfThenElseZero(hn::IsFinite(left), left), d, rest + i);
  });
}

// A value is finite when its exponent field is not all ones. The worst lane is kept as a maximum,
// so that there is one test at the end.
template <class Word>
HWY_INLINE bool Finite(const uint8_t* x, size_t count, Word exponent) {
  const hn::ScalableTag<Word> d;
  auto worst = hn::Zero(d);
  const auto mask = hn::Set(d, exponent);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    worst = hn::Max(worst, hn::And(LoadBytes(d, x + i * sizeof(Word)), mask));
  }
  if (!hn::AllFalse(d, hn::Eq(worst, mask))) return false;
  for (; i < count; ++i) {
    Word word;
    std::memcpy(&word, x + i * sizeof(Word), sizeof word);
    if ((word & exponent) == exponent) return false;
  }
  return true;
}
bool Finite32(const uint8_t* x, size_t n) { return Finite<uint32_t>(x, n, 0x7F800000u); }
bool Finite16(const uint8_t* x, size_t n, uint16_t exponent) {
  return Finite<uint16_t>(x, n, exponent);
}

}  // namespace HWY_NAMESPACE
}  // namespace crowdsurf::worker
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crowdsurf::worker {

HWY_EXPORT(AddFloat32);
HWY_EXPORT(AddFloat16);
HWY_EXPORT(AddBFloat16);
HWY_EXPORT(NarrowFloat16);
HWY_EXPORT(NarrowBFloat16);
HWY_EXPORT(WidenFloat16s);
HWY_EXPORT(WidenBFloat16s);
HWY_EXPORT(ScaleAll);
HWY_EXPORT(ChangeWithout);
HWY_EXPORT(ChangeWith);
HWY_EXPORT(LeaveFinite);
HWY_EXPORT(Finite32);
HWY_EXPORT(Finite16);

namespace {

// `add` takes kAtOnce of them at a time.
template <class Add>
void AddEach(size_t width, std::span<const float> weights, std::span<const ByteView> inputs,
             std::span<float> acc, Add add) {
  CHECK_EQ(weights.size(), inputs.size());
  for (size_t first = 0; first < inputs.size(); first += kAtOnce) {
    Weighted in{.inputs = std::min(kAtOnce, inputs.size() - first), .weights = {}, .x = {}};
    for (size_t k = 0; k < in.inputs; ++k) {
      CHECK_EQ(inputs[first + k].size(), width * acc.size());
      in.weights[k] = weights[first + k];
      in.x[k] = inputs[first + k].data();
    }
    add(in, acc);
  }
}

}  // namespace

void AddWeightedFloat32(std::span<const float> weights, std::span<const ByteView> inputs,
                        std::span<float> acc) {
  AddEach(4, weights, inputs, acc, [](const Weighted& in, std::span<float> out) {
    HWY_DYNAMIC_DISPATCH(AddFloat32)(in, out.data(), out.size());
  });
}
void AddWeightedFloat16(std::span<const float> weights, std::span<const ByteView> inputs,
                        std::span<float> acc) {
  AddEach(2, weights, inputs, acc, [](const Weighted& in, std::span<float> out) {
    HWY_DYNAMIC_DISPATCH(AddFloat16)(in, out.data(), out.size());
  });
}
void AddWeightedBFloat16(std::span<const float> weights, std::span<const ByteView> inputs,
                         std::span<float> acc) {
  AddEach(2, weights, inputs, acc, [](const Weighted& in, std::span<float> out) {
    HWY_DYNAMIC_DISPATCH(AddBFloat16)(in, out.data(), out.size());
  });
}
void Scale(float factor, std::span<float> x) {
  HWY_DYNAMIC_DISPATCH(ScaleAll)(factor, x.data(), x.size());
}
void ChangeFloats(std::span<const float> x, std::span<const float> base,
                  std::span<const float> rest, std::span<float> out) {
  CHECK_EQ(x.size(), out.size());
  CHECK_EQ(base.size(), out.size());
  if (rest.empty()) {
    HWY_DYNAMIC_DISPATCH(ChangeWithout)(x.data(), base.data(), out.data(), out.size());
    return;
  }
  CHECK_EQ(rest.size(), out.size());
  HWY_DYNAMIC_DISPATCH(ChangeWith)(x.data(), base.data(), rest.data(), out.data(), out.size());
}
void LeaveFloats(std::span<const float> change, std::span<const float> travelled,
                 std::span<float> rest) {
  CHECK_EQ(change.size(), rest.size());
  CHECK_EQ(travelled.size(), rest.size());
  HWY_DYNAMIC_DISPATCH(LeaveFinite)(change.data(), travelled.data(), rest.data(), rest.size());
}
void ToFloat16(std::span<const float> in, std::span<uint8_t> out) {
  CHECK_EQ(out.size(), 2 * in.size());
  HWY_DYNAMIC_DISPATCH(NarrowFloat16)(in.data(), out.data(), in.size());
}
void ToBFloat16(std::span<const float> in, std::span<uint8_t> out) {
  CHECK_EQ(out.size(), 2 * in.size());
  HWY_DYNAMIC_DISPATCH(NarrowBFloat16)(in.data(), out.data(), in.size());
}
void FromFloat16(ByteView in, std::span<float> out) {
  CHECK_EQ(in.size(), 2 * out.size());
  HWY_DYNAMIC_DISPATCH(WidenFloat16s)(in.data(), out.data(), out.size());
}
void FromBFloat16(ByteView in, std::span<float> out) {
  CHECK_EQ(in.size(), 2 * out.size());
  HWY_DYNAMIC_DISPATCH(WidenBFloat16s)(in.data(), out.data(), out.size());
}
bool AllFiniteFloat32(ByteView x) {
  CHECK_EQ(x.size() % 4, 0u);
  return HWY_DYNAMIC_DISPATCH(Finite32)(x.data(), x.size() / 4);
}
bool AllFiniteFloat16(ByteView x) {
  CHECK_EQ(x.size() % 2, 0u);
  return HWY_DYNAMIC_DISPATCH(Finite16)(x.data(), x.size() / 2, 0x7C00);
}
bool AllFiniteBFloat16(ByteView x) {
  CHECK_EQ(x.size() % 2, 0u);
  return HWY_DYNAMIC_DISPATCH(Finite16)(x.data(), x.size() / 2, 0x7F80);
}

}  // namespace crowdsurf::worker
#endif  // HWY_ONCE
