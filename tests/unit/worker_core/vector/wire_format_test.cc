// Wire formats: sizes, errors below what their fraction bits allow, and bytes that come back when
// decoded values are encoded again.
#include "worker/core/vector/wire_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

constexpr WireFormat kFormats[] = {WireFormat::kFloat32, WireFormat::kFloat16,
                                   WireFormat::kBFloat16};

template <class Scalar>
std::vector<Scalar> Normals(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<Scalar> out(count);
  for (Scalar& x : out) x = static_cast<Scalar>(rng.Normal());
  return out;
}

template <class Scalar>
Bytes Encoded(WireFormat format, const std::vector<Scalar>& values) {
  Bytes out(WireBytes<Scalar>(format, values.size()));
  EncodeWire(format, std::span<const Scalar>(values), out);
  return out;
}
template <class Scalar>
std::vector<Scalar> Decoded(WireFormat format, const Bytes& wire, size_t count) {
  std::vector<Scalar> out(count);
  DecodeWire(format, wire, std::span<Scalar>(out));
  return out;
}

template <class Scalar>
class WireFormatTest : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(WireFormatTest, Scalars);

TYPED_TEST(WireFormatTest, NoneIsExact) {
  const auto values = Normals<TypeParam>(1001, 3);
  const Bytes wire = Encoded(WireFormat::kFloat32, values);
  EXPECT_EQ(wire.size(), 1001 * sizeof(TypeParam));
  EXPECT_EQ(Decoded<TypeParam>(WireFormat::kFloat32, wire, 1001), values);
}

TYPED_TEST(WireFormatTest, ShortFormatsAreTwoBytesAndWithinHalfAUnit) {
  const auto values = Normals<TypeParam>(1001, 4);
  const double unit[] = {0, 0x1p-11, 0x1p-8};  // of 10 and 7 fraction bits, relative
  for (const WireFormat format : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
    const Bytes wire = Encoded(format, values);
    EXPECT_EQ(wire.size(), 2002u);
    const auto back = Decoded<TypeParam>(format, wire, 1001);
    for (size_t i = 0; i < values.size(); ++i) {
      const double bound = std::fabs(values[i]) * unit[static_cast<int>(format)] + 0x1p-24;
      EXPECT_LE(std::fabs(back[i] - values[i]), bound * 1.0001);
    }
  }
}

TYPED_TEST(WireFormatTest, EncodingWhatWasDecodedGivesTheSameBytes) {
  const auto values = Normals<TypeParam>(1001, 5);
  for (const WireFormat format : kFormats) {
    const Bytes wire = Encoded(format, values);
    EXPECT_EQ(Encoded(format, Decoded<TypeParam>(format, wire, 1001)), wire);
  }
}

TYPED_TEST(WireFormatTest, WrongSizesAndBadValuesAreNotSound) {
  for (const WireFormat format : kFormats) {
    std::vector<TypeParam> values(65, TypeParam(2));
    EXPECT_TRUE(WireIsSound<TypeParam>(format, Encoded(format, values), 65));
    EXPECT_FALSE(WireIsSound<TypeParam>(format, Encoded(format, values), 64));
    EXPECT_FALSE(WireIsSound<TypeParam>(format, ByteView(Encoded(format, values)).first(7), 65));
    EXPECT_TRUE(WireIsSound<TypeParam>(format, {}, 0));
    values[64] = std::numeric_limits<TypeParam>::quiet_NaN();
    EXPECT_FALSE(WireIsSound<TypeParam>(format, Encoded(format, values), 65));
  }
}

TYPED_TEST(WireFormatTest, ChangesHaveAByteEachAndComeBack) {
  const auto values = Normals<TypeParam>(2501, 6);
  const Bytes wire = Encoded(WireFormat::kInt8, values);
  EXPECT_EQ(wire.size(), Int8Bytes(2501));
  EXPECT_TRUE(WireIsSound<TypeParam>(WireFormat::kInt8, wire, 2501));
  EXPECT_FALSE(WireIsSound<TypeParam>(WireFormat::kInt8, wire, 2500));
  EXPECT_TRUE(WireIsSound<TypeParam>(WireFormat::kInt8, {}, 0));
  const auto back = Decoded<TypeParam>(WireFormat::kInt8, wire, 2501);
  EXPECT_EQ(Encoded(WireFormat::kInt8, back), wire);
  // Normal values: the largest of a thousand is below 6.
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(back[i], values[i], 6.0 / 127 / 2);
  std::vector<TypeParam> sums(2501, TypeParam(1)), rounded(2501);
  const TypeParam half = .5;
  const ByteView input = wire;
  AddWeightedWire(WireFormat::kInt8, std::span(&half, 1), std::span(&input, 1),
                  std::span<TypeParam>(sums));
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(sums[i], 1 + TypeParam(.5) * back[i]);
  // In pieces of whole blocks, as kernels see it.
  RoundAsWire<TypeParam>(WireFormat::kInt8, values, std::span(rounded));
  EXPECT_EQ(rounded, back);
}

}  // namespace
}  // namespace crowdsurf::worker
