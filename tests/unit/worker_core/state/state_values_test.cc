// A state's two halves as one run of bytes, and what a fetch makes of states with and without the
// second.
#include "worker/core/state/state_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/rng.h"
#include "worker/core/state/state_message.h"

namespace crowdsurf::worker {
namespace {

std::vector<float> Draw(uint64_t seed, size_t count) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng.Normal());
  return values;
}

TEST(StateValuesTest, AnyPartOfBothHalvesIsReadAndWrittenWhereItBelongs) {
  const std::vector<float> average = Draw(1, 33), velocity = Draw(2, 33);
  const StateValues state{.average = average, .velocity = velocity};
  Bytes whole;
  state.Append(0, state.bytes(), whole);
  ASSERT_EQ(whole.size(), 66 * sizeof(float));
  std::vector<float> read(66);
  std::memcpy(read.data(), whole.data(), whole.size());
  EXPECT_TRUE(std::equal(average.begin(), average.end(), read.begin()));
  EXPECT_TRUE(std::equal(velocity.begin(), velocity.end(), read.begin() + 33));
  Rng rng(3);
  for (int i = 0; i < 500; ++i) {
    const uint64_t from = rng.Uniform(whole.size() + 1);
    const uint64_t count = rng.Uniform(whole.size() - from + 1);
    Bytes part;
    state.Append(from, count, part);
    const ByteView expected = ByteView(whole).subspan(from, count);
    EXPECT_EQ(part, Bytes(expected.begin(), expected.end()));
    Bytes both;
    const ByteView seen = state.At(from, count, both);
    EXPECT_EQ(Bytes(seen.begin(), seen.end()), part);
    // Copied only where no half has all of it.
    const bool crosses = from < 33 * sizeof(float) && from + count > 33 * sizeof(float);
    EXPECT_EQ(both.empty(), !crosses);
    std::vector<float> to_average(33, 0), to_velocity(33, 0);
    const StatePlaces places{.average = to_average, .velocity = to_velocity};
    places.Write(from, part);
    Bytes back;
    StateValues{.average = to_average, .velocity = to_velocity}.Append(from, count, back);
    EXPECT_EQ(back, part);
  }
}

TEST(StateValuesTest, AVelocityIsPartOfTheContentAndOneOfZerosIsNotNone) {
  const std::vector<float> average = Draw(1, 70'000), velocity = Draw(2, 70'000);
  const std::vector<float> zeros(70'000, 0);
  const auto root = [&](const StateValues& state) {
    const StateManifest manifest = MakeStateManifest(state, AveragingId(4), {}, {});
    EXPECT_EQ(manifest.elements, state.elements());
    EXPECT_EQ(manifest.chunks(), (state.bytes() + kStateChunkBytes - 1) / kStateChunkBytes);
    return manifest.Root();
  };
  const Digest with = root({.average = average, .velocity = velocity});
  EXPECT_EQ(with, root({.average = average, .velocity = velocity}));
  EXPECT_NE(with, root({.average = average, .velocity = zeros}));
  EXPECT_NE(with, root({.average = average}));
  EXPECT_EQ(root({.average = average}), MakeStateManifest(average, AveragingId(4), {}, {}).Root());
}

}  // namespace
}  // namespace crowdsurf::worker
