// Messages of the state transfer on the wire, and the root of a manifest.
#include "worker/core/state/state_message.h"

#include <gtest/gtest.h>

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
  StateManifest lies = m;
  lies.chunk_hashes.pop_back();
  EXPECT_FALSE(DecodeStateMessage(EncodeStateMessage(ManifestReply{{}, lies, {}})).has_value());
}

TEST(StateMessageTest, TheRootNamesEveryField) {
  const StateManifest m =
      MakeStateManifest(RandomVector(3, 1000), AveragingId(5), Digest({1}), Digest({2}));
  for (int field = 0; field < 6; ++field) {
    StateManifest other = m;
    if (field == 0) other.averaging = AveragingId(6);
    if (field == 1) other.committed = Digest({9});
    if (field == 2) other.schema = Digest({9});
    if (field == 3) other.job_samples = 1;
    if (field == 4) other.view_epoch = 1;
    if (field == 5) other.chunk_hashes[0] ^= 1;
    EXPECT_NE(other.Root(), m.Root()) << field;
  }
}

}  // namespace
}  // namespace crowdsurf::worker
