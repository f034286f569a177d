// Messages of the state transfer on the wire, and the root of a manifest.
#include "worker/core/state/state_message.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/rng.h"
#include "tests/unit/worker_core/state/random_vector.h"

namespace crowdsurf::worker {
namespace {

TEST(StateMessageTest, MessagesSurviveTheWireAndGarbageDoesNot) {
  const StateManifest m =
      MakeStateManifest(RandomVector(3, 100'000), AveragingId(5), Digest({1}), Digest({2}));
  const std::vector<StateMessage> messages = {
      ManifestRequest{AveragingId(17)},
      ManifestReply{StateRefusal::kNone, m, {123, Digest({3})}},
      ManifestReply{StateRefusal::kBusy, {}, {}},
      ChunkRequest{m.Root(), true, 4},
      ChunkReply{m.Root(), false, 4, StateRefusal::kGone},
      FetchOver{}};
  Rng rng(99);
  for (const StateMessage& message : messages) {
    const Bytes bytes = EncodeStateMessage(message);
    const auto decoded = DecodeStateMessage(bytes);
    ASSERT_TRUE(decoded.has_value());
    EXPECT_TRUE(decoded->message == message);
    for (int i = 0; i < 500; ++i) {
      Bytes bad = bytes;
      bad[rng.Uniform(bad.size())] = static_cast<uint8_t>(rng.Next());
      bad.resize(rng.Uniform(bad.size() + 1));
      DecodeStateMessage(bad);  // must not crash
    }
  }
  const auto refused = [&](const std::function<void(StateManifest&)>& change) {
    StateManifest lies = m;
    change(lies);
    return !DecodeStateMessage(EncodeStateMessage(ManifestReply{{}, lies, {}})).has_value();
  };
  EXPECT_TRUE(refused([](StateManifest& lies) { lies.chunk_hashes.pop_back(); }));
  EXPECT_TRUE(refused([](StateManifest& lies) { lies.parts.clear(); }));
  EXPECT_TRUE(refused([](StateManifest& lies) { lies.parts = {50'000, 49'999}; }));
  EXPECT_TRUE(refused([](StateManifest& lies) { lies.parts = {100'000, 0}; }));
  EXPECT_TRUE(refused([](StateManifest& lies) { lies.parts = {~uint64_t{0}, 100'001}; }));
  EXPECT_TRUE(refused([](StateManifest& lies) { lies.parts.assign(65, 1); }));
  EXPECT_FALSE(refused([](StateManifest& lies) { lies.job_samples = 2; }));
}

// Parts need not be multiples of a chunk, so each has a short chunk at its end.
TEST(StateMessageTest, AManifestOfARoundsHashesHasTheRoundsChunks) {
  const std::vector<float> values = RandomVector(3, 5000);
  const auto bytes = [&](size_t begin, size_t end) {
    return ByteView(reinterpret_cast<const uint8_t*>(values.data() + begin), (end - begin) * 4);
  };
  ResultHashes hashes{
      .key = 7, .chunk_elements = 1024, .parts = {1500, 2048, 1452}, .of_chunk = {}};
  const std::vector<std::pair<size_t, size_t>> chunks = {{0, 1024},    {1024, 1500}, {1500, 2524},
                                                         {2524, 3548}, {3548, 4572}, {4572, 5000}};
  for (const auto& [begin, end] : chunks)
    hashes.of_chunk.push_back(ContentHash(bytes(begin, end), 7));
  const auto m = ManifestOf(hashes, AveragingId(5), Digest({2}));
  ASSERT_TRUE(m);
  EXPECT_EQ(m->elements, 5000u);
  ASSERT_EQ(m->chunks(), chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    const StateManifest::Bounds bounds = m->BoundsOf(i);
    EXPECT_EQ(bounds.begin, chunks[i].first * 4) << i;
    EXPECT_EQ(bounds.end, chunks[i].second * 4) << i;
    EXPECT_EQ(m->Hash(bytes(chunks[i].first, chunks[i].second)), m->chunk_hashes[i]) << i;
  }
  const auto decoded = DecodeStateMessage(EncodeStateMessage(ManifestReply{{}, *m, {}}));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(std::get<ManifestReply>(decoded->message).manifest, *m);
  hashes.chunk_elements = 64;  // below what a manifest may have
  EXPECT_FALSE(ManifestOf(hashes, AveragingId(5), Digest({2})));
}

TEST(StateMessageTest, TheRootNamesEveryField) {
  const StateManifest m =
      MakeStateManifest(RandomVector(3, 1000), AveragingId(5), Digest({1}), Digest({2}));
  for (int field = 0; field < 8; ++field) {
    StateManifest other = m;
    if (field == 0) other.averaging = AveragingId(6);
    if (field == 1) other.committed = Digest({9});
    if (field == 2) other.schema = Digest({9});
    if (field == 3) other.job_samples = 1;
    if (field == 4) other.view_epoch = 1;
    if (field == 5) other.chunk_hashes[0] ^= 1;
    if (field == 6) other.hash_key ^= 1;
    if (field == 7) other.parts = {400, 600};
    EXPECT_NE(other.Root(), m.Root()) << field;
  }
}

}  // namespace
}  // namespace crowdsurf::worker
