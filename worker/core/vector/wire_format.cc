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

std::vector<float> Floats(WireFormat format, ByteView in) {
  // Of a format with two bytes a value.
  std::vector<float> out(in.size() / 2);
  DecodeWire(format, in, std::span<float>(out));
  return out;
}

}  // namespace

void EncodeWire(WireFormat format, std::span<const float> in, std::span<uint8_t> out) {
  CHECK_EQ(out.size(), in.size() * WireWidth<float>(format));
  switch (format) {
    case WireFormat::kFloat32:
      if (!in.empty()) std::memcpy(out.data(), in.data(), out.size());
      return;
    case WireFormat::kFloat16:
      return ToFloat16(in, out);
    case WireFormat::kBFloat16:
      return ToBFloat16(in, out);
  }
}

void EncodeWire(WireFormat format, std::span<const double> in, std::span<uint8_t> out) {
  CHECK_EQ(out.size(), in.size() * WireWidth<double>(format));
  if (format == WireFormat::kFloat32) {
    if (!in.empty()) std::memcpy(out.data(), in.data(), out.size());
    return;
  }
  // Rounded to float32 first, from where the kernels convert, as in production.
  const std::vector<float> narrow(in.begin(), in.end());
  EncodeWire(format, std::span<const float>(narrow), out);
}

void DecodeWire(WireFormat format, ByteView in, std::span<float> out) {
  CHECK_EQ(in.size(), out.size() * WireWidth<float>(format));
  switch (format) {
    case WireFormat::kFloat32:
      if (!in.empty()) std::memcpy(Raw(out).data(), in.data(), in.size());
      return;
    case WireFormat::kFloat16:
      return FromFloat16(in, out);
    case WireFormat::kBFloat16:
      return FromBFloat16(in, out);
  }
}

void DecodeWire(WireFormat format, ByteView in, std::span<double> out) {
  CHECK_EQ(in.size(), out.size() * WireWidth<double>(format));
  if (format == WireFormat::kFloat32) {
    if (!in.empty()) std::memcpy(Raw(out).data(), in.data(), in.size());
    return;
  }
  const std::vector<float> values = Floats(format, in);
  std::copy(values.begin(), values.end(), out.begin());
}

void AddWeightedWire(WireFormat format, double weight, ByteView in, std::span<float> acc) {
  const float w = static_cast<float>(weight);
  switch (format) {
    case WireFormat::kFloat32:
      return AddWeightedFloat32(w, in, acc);
    case WireFormat::kFloat16:
      return AddWeightedFloat16(w, in, acc);
    case WireFormat::kBFloat16:
      return AddWeightedBFloat16(w, in, acc);
  }
}

void AddWeightedWire(WireFormat format, double weight, ByteView in, std::span<double> acc) {
  // Doubles are for simulators and tests, so they have no kernels.
  std::vector<double> values(acc.size());
  DecodeWire(format, in, std::span<double>(values));
  for (size_t i = 0; i < acc.size(); ++i) acc[i] += weight * values[i];
}

void ScaleValues(double factor, std::span<float> x) { Scale(static_cast<float>(factor), x); }
void ScaleValues(double factor, std::span<double> x) {
  for (double& value : x) value *= factor;
}

template <>
bool WireIsSound<float>(WireFormat format, ByteView in, size_t count) {
  if (in.size() != count * WireWidth<float>(format)) return false;
  switch (format) {
    case WireFormat::kFloat32:
      return AllFiniteFloat32(in);
    case WireFormat::kFloat16:
      return AllFiniteFloat16(in);
    case WireFormat::kBFloat16:
      return AllFiniteBFloat16(in);
  }
  return false;
}

template <>
bool WireIsSound<double>(WireFormat format, ByteView in, size_t count) {
  if (format != WireFormat::kFloat32) return WireIsSound<float>(format, in, count);
  if (in.size() != count * sizeof(double)) return false;
  std::vector<double> values(count);
  DecodeWire(format, in, std::span<double>(values));
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

}  // namespace crowdsurf::worker
