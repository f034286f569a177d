#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <set>
#include <thread>

#include "base/backoff.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/digest.h"
#include "base/id.h"
#include "base/log.h"
#include "base/mailbox.h"
#include "base/metrics.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/time.h"

namespace crowdsurf {
namespace {

TEST(TimeTest, ArithmeticSaturatesAtInfinite) {
  const Time now = Time::FromNanoseconds(5);
  EXPECT_TRUE((now + Duration::Infinite()).infinite());
  EXPECT_TRUE((Time::Infinite() - now).infinite());
  EXPECT_EQ(now + Milliseconds(2) - now, Microseconds(2000));
  EXPECT_TRUE(Seconds(1e12).infinite());
}

TEST(RngTest, MatchesTheReferenceGenerator) {
  // splitmix64(0): first outputs of the reference implementation (Vigna, splitmix64.c) give this
  // xoshiro state, and these are the first draws of xoshiro256** from it.
  Rng rng(0);
  EXPECT_EQ(rng.Next(), 0x99EC5F36CB75F2B4ULL);
  EXPECT_EQ(rng.Next(), 0xBF6E1F784956452AULL);
}

TEST(RngTest, ForkDoesNotAdvanceAndDependsOnLabel) {
  Rng a(7), b(7);
  Rng x = a.Fork("x"), y = a.Fork("y");
  EXPECT_EQ(a.Next(), b.Next());
  EXPECT_NE(x.Next(), y.Next());
}

TEST(RngTest, MomentsMatchTheDistributions) {
  Rng rng(1);
  double sum = 0, squares = 0, exponential = 0, poisson = 0;
  constexpr int kDraws = 200'000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = rng.Normal();
    sum += x;
    squares += x * x;
    exponential += rng.Exponential(3);
    poisson += static_cast<double>(rng.Poisson(2.5));
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1, 0.02);
  EXPECT_NEAR(exponential / kDraws, 3, 0.05);
  EXPECT_NEAR(poisson / kDraws, 2.5, 0.03);
}

TEST(BytesTest, ReaderStopsAtTheFirstViolation) {
  ByteWriter w;
  w.U32(3);
  w.String("abc");
  w.F64(-0.5);
  ByteReader r(w.bytes());
  EXPECT_EQ(r.U32(), 3u);
  EXPECT_EQ(r.String(10), "abc");
  EXPECT_EQ(r.F64(), -0.5);
  EXPECT_TRUE(r.Done());
  EXPECT_EQ(r.U64(), 0u);
  EXPECT_FALSE(r.ok());

  ByteReader limited(w.bytes());
  limited.U32();
  EXPECT_EQ(limited.String(2), "");
  EXPECT_FALSE(limited.ok());
}

TEST(BytesTest, CountBoundsAllocationByWhatIsThere) {
  ByteWriter w;
  w.U32(1'000'000);
  ByteReader r(w.bytes());
  EXPECT_EQ(r.Count(2'000'000, 8), 0u);
  EXPECT_FALSE(r.ok());
}

TEST(IdTest, HexRoundTripsAndRefusesOthers) {
  const Digest d = Sha256(AsBytes("abc"));
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(d.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Digest::FromHexString(d.hex()), d);
  EXPECT_EQ(Digest::FromHexString("xy"), std::nullopt);
  EXPECT_TRUE(PeerId().none());
}

TEST(IdTest, OrdersAsItsBytesDoFromTheFirstToTheLast) {
  const std::array<uint8_t, 32> middle = [] {
    std::array<uint8_t, 32> bytes;
    bytes.fill(0x80);  // as a signed byte the least
    return bytes;
  }();
  for (size_t at = 0; at < middle.size(); ++at) {
    auto less = middle, more = middle;
    // What follows says the opposite: the first byte that differs decides.
    for (size_t i = at; i < middle.size(); ++i) {
      less[i] = i == at ? 0x7f : 0xff;
      more[i] = i == at ? 0x81 : 0x00;
    }
    EXPECT_LT(PeerId(less), PeerId(middle)) << at;
    EXPECT_GT(PeerId(more), PeerId(middle)) << at;
    EXPECT_NE(PeerId(less), PeerId(middle)) << at;
  }
  EXPECT_EQ(PeerId(middle), PeerId(middle));
  EXPECT_EQ(PeerId(middle) <=> PeerId(middle), std::strong_ordering::equal);
}

TEST(DigestTest, ContentHashDependsOnKey) {
  EXPECT_NE(ContentHash(AsBytes("abc"), 1), ContentHash(AsBytes("abc"), 2));
  // XXH3-64 of the empty input with seed 0, from the algorithm's specification.
  EXPECT_EQ(ContentHash({}, 0), 0x2D06800538D394C2ULL);
}

TEST(BackoffTest, GrowsToItsCapWithinJitter) {
  Rng rng(3);
  const Backoff backoff{
      .initial = Milliseconds(100), .most = Seconds(2), .factor = 2, .jitter = 0.5};
  for (int attempt = 0; attempt < 12; ++attempt) {
    const double full = std::min(0.1 * std::pow(2, attempt), 2.0);
    const double delay = backoff.Delay(attempt, rng).seconds();
    EXPECT_LE(delay, full + 1e-9);
    EXPECT_GE(delay, full / 2 - 1e-9);
  }
}

TEST(MailboxTest, RefusesWhenFullAndDrainsAfterClose) {
  Mailbox<int> box(2);
  EXPECT_TRUE(box.Post(1));
  EXPECT_TRUE(box.Post(2));
  EXPECT_FALSE(box.Post(3));
  EXPECT_EQ(box.refused(), 1u);
  box.Close();
  EXPECT_EQ(box.TryTake(), 1);
  EXPECT_EQ(box.Take(std::chrono::steady_clock::time_point::max()), 2);
  EXPECT_EQ(box.Take(std::chrono::steady_clock::time_point::max()), std::nullopt);
}

TEST(MailboxTest, CarriesEverythingFromSeveralThreads) {
  Mailbox<int> box(100'000);
  std::thread a([&] {
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(box.Post(i));
  });
  std::thread b([&] {
    for (int i = 1000; i < 2000; ++i) ASSERT_TRUE(box.Post(i));
  });
  std::set<int> seen;
  while (seen.size() < 2000) seen.insert(*box.Take(std::chrono::steady_clock::time_point::max()));
  a.join();
  b.join();
  EXPECT_EQ(*seen.rbegin(), 1999);
}

TEST(MailboxTest, BytesBoundWhatWaitsToo) {
  Mailbox<int> box(10, 100);
  EXPECT_TRUE(box.Post(1, 60));
  EXPECT_FALSE(box.Post(2, 60));
  EXPECT_TRUE(box.Post(3, 40));
  EXPECT_EQ(box.bytes(), 100u);
  EXPECT_EQ(box.TryTake(), 1);
  EXPECT_EQ(box.TryTake(), 3);
  EXPECT_EQ(box.bytes(), 0u);
  EXPECT_TRUE(box.Post(4, 1000)) << "alone it passes, or it never would";
  EXPECT_FALSE(box.Post(5, 1));
}

TEST(MailboxTest, APosterThatMustNotLoseAnythingWaitsForRoom) {
  Mailbox<int> box(1000, 10);
  std::thread poster([&] {
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(box.PostWaiting(i, 1 + i % 10));
  });
  for (int i = 0; i < 1000; ++i) {
    EXPECT_LE(box.bytes(), 10u);
    EXPECT_EQ(box.Take(std::chrono::steady_clock::time_point::max()), i);
  }
  poster.join();
  EXPECT_EQ(box.refused(), 0u);
}

TEST(MailboxTest, WhoWaitsForRoomIsRefusedByClose) {
  Mailbox<int> box(1);
  EXPECT_TRUE(box.Post(1));
  std::thread poster([&] { EXPECT_FALSE(box.PostWaiting(2)); });
  while (box.waits() == 0) std::this_thread::yield();
  box.Close();
  poster.join();
}

TEST(MetricsTest, SeriesStartAtZeroAndDropByLabel) {
  MetricRegistry registry;
  Counter& counter = registry.AddCounter("crowdsurf_test_total", "Test.", {{"job", "a"}});
  counter.Add();
  EXPECT_EQ(&registry.AddCounter("crowdsurf_test_total", "Test.", {{"job", "a"}}), &counter);
  registry.AddCounter("crowdsurf_test_total", "Test.", {{"job", "b"}});
  EXPECT_EQ(registry.Value("crowdsurf_test_total", {{"job", "a"}}), 1);
  registry.Drop({{"job", "a"}});
  ASSERT_EQ(registry.Collect().size(), 1u);
  EXPECT_EQ(registry.Collect()[0].series.size(), 1u);
  Histogram& histogram = registry.AddHistogram("crowdsurf_test_seconds", "Test.", {1, 2});
  histogram.Observe(1);
  histogram.Observe(5);
  EXPECT_EQ(histogram.bucket(0), 1u);
  EXPECT_EQ(histogram.bucket(2), 1u);
}

TEST(MetricsDeathTest, ANameThatContradictsItsKindIsAProgrammersError) {
  MetricRegistry registry;
  EXPECT_DEATH(registry.AddCounter("crowdsurf_test_count", "Test."), "_total");
  EXPECT_DEATH(registry.AddGauge("crowdsurf_test_total", "Test."), "_total");
  EXPECT_DEATH(registry.AddGauge("crowdsurf_test_bytes", ""), "help");
}

TEST(MetricsTest, ASeriesMayAppearWhileAnotherThreadCollects) {
  MetricRegistry registry;
  std::atomic<bool> done{false};
  std::thread scraper([&] {
    while (!done) (void)registry.Collect();
  });
  for (int i = 0; i < 500; ++i) {
    registry.AddCounter("crowdsurf_test_total", "Test.", {{"i", std::to_string(i)}}).Add();
    if (i % 2 == 0) registry.Drop({{"i", std::to_string(i)}});
  }
  done = true;
  scraper.join();
  EXPECT_EQ(registry.Collect()[0].series.size(), 250u);
}

TEST(StatusTest, MacrosReturnTheFirstError) {
  const auto fails = []() -> StatusOr<int> { return absl::NotFoundError("no such peer"); };
  const auto chain = [&]() -> StatusOr<int> {
    ASSIGN_OR_RETURN(const int x, fails());
    return x;
  };
  EXPECT_EQ(chain().status().message(), "no such peer");
}

TEST(CheckDeathTest, PrintsTheOperands) {
  EXPECT_DEATH(CHECK_EQ(1 + 1, 3), "1 \\+ 1 == 3 \\(2 vs 3\\)");
}

}  // namespace
}  // namespace crowdsurf
