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

#include "worker/core/vector/float_lanes.inc"

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
void FiniteRest(const float* change, const float* travelled, float* rest, size_t n) {
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
HWY_EXPORT(FiniteRest);
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
void RestFloats(std::span<const float> change, std::span<const float> travelled,
                std::span<float> rest) {
  CHECK_EQ(change.size(), rest.size());
  CHECK_EQ(travelled.size(), rest.size());
  HWY_DYNAMIC_DISPATCH(FiniteRest)(change.data(), travelled.data(), rest.data(), rest.size());
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
