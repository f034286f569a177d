#include "worker/core/vector/wire_format.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "worker/core/vector/kernels.h"

namespace crowdsurf::worker {
namespace {

template <class Scalar>
std::span<uint8_t> Raw(std::span<Scalar> values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size_bytes()};
}

}  // namespace

void EncodeWire(WireFormat format, std::span<const float> in, std::span<uint8_t> out) {
  CHECK_EQ(out.size(), WireBytes<float>(format, in.size()));
  switch (format) {
    case WireFormat::kFloat32:
      if (!in.empty()) std::memcpy(out.data(), in.data(), out.size());
      return;
    case WireFormat::kFloat16:
      return ToFloat16(in, out);
    case WireFormat::kBFloat16:
      return ToBFloat16(in, out);
    case WireFormat::kInt8:
      return ToInt8(in, out);
  }
}

void EncodeWire(WireFormat format, std::span<const double> in, std::span<uint8_t> out) {
  CHECK_EQ(out.size(), WireBytes<double>(format, in.size()));
  if (format == WireFormat::kFloat32) {
    if (!in.empty()) std::memcpy(out.data(), in.data(), out.size());
    return;
  }
  // Rounded to float32 first, from where the kernels convert, as in production.
  const std::vector<float> narrow(in.begin(), in.end());
  EncodeWire(format, std::span<const float>(narrow), out);
}

void EncodeMean(const Int8Dither& dither, std::span<const float> in, std::span<uint8_t> out) {
  ToInt8Dithered(dither, in, out);
}

void EncodeMean(const Int8Dither& dither, std::span<const double> in, std::span<uint8_t> out) {
  ToInt8Dithered(dither, std::vector<float>(in.begin(), in.end()), out);
}

void DecodeWire(WireFormat format, ByteView in, std::span<float> out) {
  CHECK_EQ(in.size(), WireBytes<float>(format, out.size()));
  switch (format) {
    case WireFormat::kFloat32:
      if (!in.empty()) std::memcpy(Raw(out).data(), in.data(), in.size());
      return;
    case WireFormat::kFloat16:
      return FromFloat16(in, out);
    case WireFormat::kBFloat16:
      return FromBFloat16(in, out);
    case WireFormat::kInt8:
      return FromInt8(in, out);
  }
}

void DecodeWire(WireFormat format, ByteView in, std::span<double> out) {
  CHECK_EQ(in.size(), WireBytes<double>(format, out.size()));
  if (format == WireFormat::kFloat32) {
    if (!in.empty()) std::memcpy(Raw(out).data(), in.data(), in.size());
    return;
  }
  std::vector<float> values(out.size());
  DecodeWire(format, in, std::span<float>(values));
  std::copy(values.begin(), values.end(), out.begin());
}

void AddWeightedWire(WireFormat format, std::span<const float> weights,
                     std::span<const ByteView> inputs, std::span<float> acc) {
  switch (format) {
    case WireFormat::kFloat32:
      return AddWeightedFloat32(weights, inputs, acc);
    case WireFormat::kFloat16:
      return AddWeightedFloat16(weights, inputs, acc);
    case WireFormat::kBFloat16:
      return AddWeightedBFloat16(weights, inputs, acc);
    case WireFormat::kInt8:
      for (size_t k = 0; k < inputs.size(); ++k) AddWeightedInt8(weights[k], inputs[k], acc);
  }
}

void AddWeightedWire(WireFormat format, std::span<const double> weights,
                     std::span<const ByteView> inputs, std::span<double> acc) {
  // Doubles are for simulators and tests, so they have no kernels.
  std::vector<double> values(acc.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    DecodeWire(format, inputs[k], std::span<double>(values));
    for (size_t i = 0; i < acc.size(); ++i) acc[i] += weights[k] * values[i];
  }
}

void ScaleValues(double factor, std::span<float> x) { Scale(static_cast<float>(factor), x); }
void ScaleValues(double factor, std::span<double> x) {
  for (double& value : x) value *= factor;
}

Float32Look LookAtFloat32(ByteView bytes) {
  if (bytes.size() % sizeof(float) != 0) return Float32Look::kNone;
  return AllFiniteFloat32(bytes) ? Float32Look::kFinite : Float32Look::kNotFinite;
}

template <>
bool WireIsSound<float>(WireFormat format, ByteView in, size_t count) {
  if (in.size() != WireBytes<float>(format, count)) return false;
  switch (format) {
    case WireFormat::kFloat32:
      return AllFiniteFloat32(in);
    case WireFormat::kFloat16:
      return AllFiniteFloat16(in);
    case WireFormat::kBFloat16:
      return AllFiniteBFloat16(in);
    case WireFormat::kInt8:
      return Int8IsSound(in, count);
  }
  return false;
}

template <>
bool WireIsSound<double>(WireFormat format, ByteView in, size_t count) {
  if (format != WireFormat::kFloat32) return WireIsSound<float>(format, in, count);
  if (in.size() != WireBytes<double>(format, count)) return false;
  std::vector<double> values(count);
  DecodeWire(format, in, std::span<double>(values));
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

}  // namespace crowdsurf::worker
