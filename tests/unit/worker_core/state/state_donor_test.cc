// Whom a donor of state serves, and with what: ranges by hand, and the bounds of StateDonorOptions.
#include "worker/core/state/state_donor.h"

#include <gtest/gtest.h>

#include "base/digest.h"
#include "tests/unit/worker_core/world/numbered_peers.h"

namespace crowdsurf::worker {
namespace {

const Time kNow = Time::FromNanoseconds(1'000'000'000);

StateManifest Average(uint64_t number, size_t elements = 200'000) {
  return MakeStateManifest(std::vector<float>(elements, static_cast<float>(number)),
                           AveragingId(number), Digest(), Digest());
}

struct StateDonorTest : testing::Test {
  MetricRegistry metrics;
  StateDonor donor{StateDonorOptions{}, metrics};

  StateRefusal RefusalOf(const std::optional<SendState>& send) {
    if (const auto* m = std::get_if<ManifestReply>(&send->message)) return m->refusal;
    return std::get<ChunkReply>(send->message).refusal;
  }
};

TEST_F(StateDonorTest, TheNewestAverageIsOfferedAndAnOlderOneByItsNumber) {
  donor.Offer(0, Average(4));
  donor.Offer(1, Average(5));
  const auto newest = donor.OnMessage(kNow, Id(1), ManifestRequest{});
  EXPECT_EQ(std::get<ManifestReply>(newest->message).manifest.averaging, AveragingId(5));
  const auto older = donor.OnMessage(kNow, Id(1), ManifestRequest{AveragingId(4)});
  EXPECT_EQ(std::get<ManifestReply>(older->message).manifest.averaging, AveragingId(4));
  EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(1), ManifestRequest{AveragingId(6)})),
            StateRefusal::kNothing);
}

// Gradients: parameters and opaque state are of one step, or nothing is given.
TEST_F(StateDonorTest, AnExactDonorOffersAnAverageWithTheOpaqueStateOfItsStep) {
  donor.SetExact(true);
  donor.Offer(0, Average(4));
  EXPECT_TRUE(donor.WantsOpaque(kNow));
  EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(1), ManifestRequest{})), StateRefusal::kBusy);
  donor.SetOpaque(kNow, {3, Sha256(AsBytes("abc"))}, AveragingId(3));
  EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(1), ManifestRequest{})), StateRefusal::kBusy);
  donor.SetOpaque(kNow, {3, Sha256(AsBytes("abc"))}, AveragingId(4));
  EXPECT_FALSE(donor.WantsOpaque(kNow));
  EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(1), ManifestRequest{})), StateRefusal::kNone);
}

// Others: a joiner's optimizer counts from about the average that it takes.
TEST_F(StateDonorTest, AnOpaqueStateOfBeforeTheNewestAverageIsWantedAgain) {
  donor.Offer(0, Average(4));
  EXPECT_TRUE(donor.WantsOpaque(kNow)) << "none was given";
  donor.SetOpaque(kNow, {3, Sha256(AsBytes("abc"))});
  EXPECT_FALSE(donor.WantsOpaque(kNow + Seconds(5)));
  EXPECT_TRUE(donor.WantsOpaque(kNow + Seconds(5) + Nanoseconds(1))) << "it is old";
  donor.Offer(1, Average(5));
  EXPECT_TRUE(donor.WantsOpaque(kNow));
}

// A joiner whose state is replaced begins again: where averagings are quick, it would for ever.
TEST_F(StateDonorTest, AnOpaqueStateStaysWhileAJoinerFetchesIt) {
  donor.SetOpaque(kNow, {3, Sha256(AsBytes("abc"))});
  donor.Offer(0, Average(4));
  donor.OnMessage(kNow, Id(1), ManifestRequest{});
  EXPECT_FALSE(donor.WantsOpaque(kNow + Seconds(5)));
  EXPECT_TRUE(donor.WantsOpaque(kNow + Seconds(5) + Nanoseconds(1))) << "it is old";
  donor.OnOver(Id(1));
  EXPECT_TRUE(donor.WantsOpaque(kNow));
}

// On a thin link its transfer takes longer than a state is fresh, or than until a checkpoint has
// asked for another one.
TEST_F(StateDonorTest, AnOpaqueStateThatIsReadStays) {
  const OpaqueState old{300'000, Sha256(AsBytes("abc"))}, newer{3, Sha256(AsBytes("abd"))};
  const StateDonorOptions options;
  EXPECT_TRUE(donor.SetOpaque(kNow, old));
  donor.Offer(0, Average(4));
  Time now = kNow;
  const auto reads = [&] { donor.OnMessage(now, Id(1), ChunkRequest{old.hash, true, 0}); };
  for (; now - kNow <= options.opaque_kept; now = now + options.silence) {
    reads();
    donor.OnSent(Id(1));
    EXPECT_FALSE(donor.WantsOpaque(now));
    EXPECT_FALSE(donor.SetOpaque(now, newer));
  }
  EXPECT_TRUE(donor.WantsOpaque(now)) << "not for ever";
  EXPECT_TRUE(donor.SetOpaque(now, old));
  reads();
  EXPECT_FALSE(donor.SetOpaque(now + options.silence, newer));
  EXPECT_TRUE(donor.SetOpaque(now + options.silence + Nanoseconds(1), newer)) << "it is gone";
  EXPECT_TRUE(donor.SetOpaque(now, old));
  reads();
  donor.OnOver(Id(1));
  EXPECT_TRUE(donor.SetOpaque(now, newer));
}

TEST_F(StateDonorTest, AChunkIsARangeOfTheInboxThatHoldsIt) {
  const StateManifest m = Average(4);
  ASSERT_EQ(m.chunks(), 4u) << "800,000 bytes";
  donor.Offer(1, m);
  const auto send = donor.OnMessage(kNow, Id(1), ChunkRequest{m.Root(), false, 3});
  EXPECT_EQ(send->inbox, 1);
  EXPECT_EQ(send->offset, 3u * 262'144);
  EXPECT_EQ(send->bytes, 800'000u - 3 * 262'144);
  EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(1), ChunkRequest{m.Root(), false, 4})),
            StateRefusal::kGone);
}

TEST_F(StateDonorTest, ARetiredInboxIsGoneBeforeItIsWritten) {
  const StateManifest m = Average(4);
  donor.Offer(1, m);
  donor.Retire(1);
  EXPECT_FALSE(donor.holds(AveragingId(4)));
  EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(1), ChunkRequest{m.Root(), false, 0})),
            StateRefusal::kGone);
}

TEST_F(StateDonorTest, JoinersAndTheirWindowsAreBounded) {
  const StateManifest m = Average(4);
  donor.Offer(0, m);
  for (uint8_t n = 1; n <= 4; ++n) {
    EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(n), ManifestRequest{})), StateRefusal::kNone);
  }
  EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(5), ManifestRequest{})), StateRefusal::kBusy);
  const ChunkRequest request{m.Root(), false, 0};
  for (size_t i = 0; i < StateDonorOptions().max_window; ++i) {
    EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(1), request)), StateRefusal::kNone);
  }
  EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(1), request)), StateRefusal::kBusy);
  donor.OnSent(Id(1));
  EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(1), request)), StateRefusal::kNone);
  EXPECT_EQ(RefusalOf(donor.OnMessage(kNow + Seconds(11), Id(5), ManifestRequest{})),
            StateRefusal::kNone)
      << "the silent ones lost their places";
  EXPECT_EQ(metrics.Value("crowdsurf_state_requests_refused_total", {{"reason", "busy"}}), 2);
}

TEST_F(StateDonorTest, WhoHasEverythingLeavesItsPlaceAtOnce) {
  donor.Offer(0, Average(4));
  for (uint8_t n = 1; n <= 4; ++n) donor.OnMessage(kNow, Id(n), ManifestRequest{});
  donor.OnOver(Id(9));  // of whom nothing is known
  EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(5), ManifestRequest{})), StateRefusal::kBusy);
  donor.OnOver(Id(2));
  EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(5), ManifestRequest{})), StateRefusal::kNone);
  EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(2), ManifestRequest{})), StateRefusal::kBusy);
}

TEST_F(StateDonorTest, TheOpaqueStateIsServedUnderItsOwnHashOnly) {
  std::array<uint8_t, 32> hash{7};
  donor.SetOpaque(kNow, {300'000, Digest(hash)});
  const auto send = donor.OnMessage(kNow, Id(1), ChunkRequest{Digest(hash), true, 1});
  EXPECT_EQ(send->inbox, -1);
  EXPECT_EQ(send->offset, 262'144u);
  EXPECT_EQ(send->bytes, 300'000u - 262'144);
  EXPECT_EQ(RefusalOf(donor.OnMessage(kNow, Id(1), ChunkRequest{Digest(), true, 0})),
            StateRefusal::kGone);
}

TEST_F(StateDonorTest, AReplyIsNoRequestAndIsCounted) {
  EXPECT_FALSE(donor.OnMessage(kNow, Id(1), ChunkReply{}).has_value());
  EXPECT_EQ(metrics.Value("crowdsurf_state_requests_refused_total", {{"reason", "garbled"}}), 1);
}

}  // namespace
}  // namespace crowdsurf::worker
