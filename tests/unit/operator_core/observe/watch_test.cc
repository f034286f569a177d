// What watches say, what is kept of it, and when it is looked at.
#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "operator/core/observe/object_cache.h"
#include "operator/core/observe/watch_parser.h"
#include "operator/core/observe/work_queue.h"

namespace crowdsurf::controller {
namespace {

using Json = nlohmann::json;
using Type = WatchEvent::Type;

std::string Line(const char* type, const char* name, const char* version, int value = 0) {
  return Json{{"type", type},
              {"object",
               {{"metadata", {{"name", name}, {"namespace", "n"}, {"resourceVersion", version}}},
                {"value", value}}}}
             .dump() +
         "\n";
}

TEST(WatchParserTest, EventsAreTheSameHoweverTheBytesAreCut) {
  const std::string bytes = Line("ADDED", "a", "1") + Line("MODIFIED", "a", "2") + "\n" +
                            Line("DELETED", "b", "3") + Line("BOOKMARK", "", "9");
  WatchParser whole;
  std::vector<WatchEvent> expected;
  whole.Feed(bytes, expected);
  ASSERT_EQ(expected.size(), 4u);
  EXPECT_EQ(expected[3].type, Type::kBookmark);
  EXPECT_EQ(expected[3].resource_version, "9");
  Rng rng(1);
  for (int run = 0; run < 200; ++run) {
    WatchParser parser;
    std::vector<WatchEvent> events;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = 1 + rng.Uniform(40);
      parser.Feed(std::string_view(bytes).substr(at, n), events);
      at += n;
    }
    ASSERT_EQ(events.size(), expected.size());
    for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].object, expected[i].object);
  }
}

TEST(WatchParserTest, Status410AsksForARelistAndOthersFail) {
  WatchParser parser;
  std::vector<WatchEvent> events;
  parser.Feed(R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}})"
              "\n"
              R"({"type":"ERROR","object":{"kind":"Status","code":500}})"
              "\n",
              events);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].type, Type::kExpired);
  EXPECT_EQ(events[1].type, Type::kFailed);
}

TEST(WatchParserTest, GarbageIsCountedAndWhatFollowsIsRead) {
  WatchParser parser(200);
  std::vector<WatchEvent> events;
  parser.Feed("not json\n[]\n{\"type\":\"ADDED\"}\n{\"type\":\"NEW\",\"object\":{}}\n", events);
  EXPECT_EQ(parser.garbled(), 4u);
  parser.Feed(std::string(1000, 'x'), events);
  parser.Feed(std::string(1000, 'x') + "\n" + Line("ADDED", "a", "1"), events);
  EXPECT_EQ(parser.oversized(), 1u);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].resource_version, "1");
}

TEST(WatchParserTest, MutatedBytesNeverCrash) {
  Rng rng(7);
  const std::string good = Line("ADDED", "a", "1") + Line("MODIFIED", "a", "2");
  for (int run = 0; run < 5000; ++run) {
    std::string bytes = good;
    for (int i = 0; i < 4; ++i)
      bytes[rng.Uniform(bytes.size())] = static_cast<char>(rng.Uniform(256));
    WatchParser parser;
    std::vector<WatchEvent> events;
    parser.Feed(bytes, events);
    EXPECT_LE(events.size(), 6u);
  }
}

using IntCache = ObjectCache<int>;

TEST(ObjectCacheTest, ReportsOnlyChangesOfWhatIsUsed) {
  IntCache cache;
  EXPECT_TRUE(cache.Apply({"a", 1, 1}).has_value());
  EXPECT_FALSE(cache.Apply({"a", 2, 1}).has_value());
  const auto change = cache.Apply({"a", 3, 2});
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->before, 1);
  EXPECT_EQ(change->after, 2);
  EXPECT_FALSE(cache.Apply({"b", 4, std::nullopt}).has_value());
  EXPECT_TRUE(cache.Apply({"a", 5, std::nullopt}).has_value());
  EXPECT_EQ(cache.Find("a"), nullptr);
}

TEST(ObjectCacheTest, ARelistFindsWhatTheWatchMissed) {
  IntCache cache;
  cache.Apply({"gone", 1, 1});
  cache.Apply({"same", 2, 2});
  cache.Apply({"changed", 3, 3});
  const auto changes = cache.Replace({{{"same", 2, 2}, {"changed", 8, 4}, {"new", 9, 5}}, 10});
  ASSERT_EQ(changes.size(), 3u);
  std::map<std::string, std::optional<int>> after;
  for (const auto& change : changes) after[change.key] = change.after;
  EXPECT_EQ(after["gone"], std::nullopt);
  EXPECT_EQ(after["changed"], 4);
  EXPECT_EQ(after["new"], 5);
  EXPECT_EQ(cache.objects().size(), 3u);
}

// Somebody else's change of what is not used: nobody is woken, and the next write is based on it.
TEST(ObjectCacheTest, TheVersionFollowsNewsThatChangeNothing) {
  IntCache cache;
  cache.Apply({"a", 1, 1});
  EXPECT_FALSE(cache.Apply({"a", 7, 1}).has_value());
  EXPECT_EQ(cache.Version("a"), 7u);
  EXPECT_EQ(cache.Version("b"), 0u);
}

TEST(ObjectCacheTest, WhatWasWrittenIsKnownUntilAListThatCoversItLacksIt) {
  IntCache cache;
  cache.Replace({{}, 10});
  EXPECT_TRUE(cache.Assume({"own", 15, 1}).has_value());
  EXPECT_TRUE(cache.Replace({{}, 14}).empty()) << "it was read before the write";
  EXPECT_NE(cache.Find("own"), nullptr);
  EXPECT_EQ(cache.Replace({{}, 15}).size(), 1u);
  EXPECT_EQ(cache.Find("own"), nullptr);
}

// The server's etcd was restored from a day ago: its versions begin anew from there.
TEST(ObjectCacheTest, AListThatIsOlderThanWhatWasToldIsTheTruth) {
  IntCache cache;
  cache.Replace({{{"kept", 90, 1}, {"changed", 95, 2}, {"gone", 96, 3}}, 100});
  cache.Apply({"gone", 110, 4});
  const auto changes = cache.Replace({{{"kept", 40, 1}, {"changed", 45, 7}}, 60});
  EXPECT_EQ(changes.size(), 2u);
  EXPECT_EQ(*cache.Find("changed"), 7);
  EXPECT_EQ(cache.Find("gone"), nullptr) << "it is held for ever";
  EXPECT_EQ(cache.Version("kept"), 40u) << "writes are based on it";
  EXPECT_TRUE(cache.Apply({"kept", 61, 9}).has_value()) << "and news are news again";
  EXPECT_TRUE(cache.Assume({"own", 62, 1}).has_value());
  EXPECT_TRUE(cache.Replace({{{"kept", 61, 9}, {"changed", 45, 7}}, 61}).empty());
  EXPECT_NE(cache.Find("own"), nullptr) << "and what was written is known until a list covers it";
}

TEST(ObjectCacheTest, OldNewsDoNotUndoWhatIsKnown) {
  IntCache cache;
  cache.Assume({"a", 8, 2});
  EXPECT_FALSE(cache.Apply({"a", 5, 1}).has_value());
  EXPECT_FALSE(cache.Apply({"a", 6, std::nullopt}).has_value()) << "of an earlier one of its name";
  EXPECT_TRUE(cache.Replace({{{"a", 7, 1}}, 7}).empty());
  EXPECT_EQ(*cache.Find("a"), 2);
}

TEST(ObjectCacheTest, AnAnswerThatComesAfterTheEndBringsNothingBack) {
  IntCache cache;
  cache.Apply({"own", 5, 1});
  cache.Apply({"own", 8, std::nullopt});
  EXPECT_FALSE(cache.Assume({"own", 5, 1}).has_value());
  EXPECT_EQ(cache.Find("own"), nullptr);
}

const Time kStart = Time::FromNanoseconds(1);

TEST(WorkQueueTest, AKeyWaitsOnceAndComesAgainIfAddedWhileWorkedOn) {
  WorkQueue queue{Rng(1)};
  queue.Add("a", kStart);
  queue.Add("a", kStart);
  EXPECT_EQ(queue.depth(), 1u);
  EXPECT_EQ(queue.Get(kStart), "a");
  EXPECT_EQ(queue.Get(kStart), std::nullopt);
  queue.Add("a", kStart);
  EXPECT_EQ(queue.Get(kStart), std::nullopt);  // one key, one worker
  queue.Done("a");
  EXPECT_EQ(queue.Get(kStart), "a");
}

TEST(WorkQueueTest, TheEarliestOfSeveralDelaysCounts) {
  WorkQueue queue{Rng(1)};
  queue.AddAfter("a", kStart, Seconds(10));
  queue.AddAfter("a", kStart, Seconds(1));
  queue.AddAfter("a", kStart, Seconds(5));
  EXPECT_EQ(queue.NextReady(), kStart + Seconds(1));
  EXPECT_EQ(queue.Get(kStart), std::nullopt);
  EXPECT_EQ(queue.Get(kStart + Seconds(1)), "a");
}

TEST(WorkQueueTest, FailuresBackOffExponentiallyUntilForgotten) {
  WorkQueue queue{Rng(1)};
  const auto within = [&](Duration full) {
    const Duration delay = queue.AddRateLimited("a", kStart);
    EXPECT_LE(delay, full);
    EXPECT_GE(delay, full * 0.5);
    return delay;
  };
  within(Milliseconds(250));
  within(Milliseconds(500));
  for (int i = 0; i < 70; ++i) queue.AddRateLimited("a", kStart);
  EXPECT_NE(within(Seconds(60)), within(Seconds(60))) << "jobs that failed together come apart";
  queue.Forget("a");
  within(Milliseconds(250));
}

TEST(WorkQueueTest, ABusyKeyCannotStarveAnother) {
  WorkQueue queue{Rng(1)};
  Time now = kStart;
  queue.Add("busy", now);
  queue.Add("quiet", now + Milliseconds(1));
  int turns = 0;
  for (std::optional<std::string> key; turns < 10; ++turns) {
    now = now + Milliseconds(1);
    key = queue.Get(now);
    ASSERT_TRUE(key.has_value());
    if (*key == "quiet") break;
    queue.Add("busy", now);
    queue.Done("busy");
  }
  EXPECT_LE(turns, 2);  // at equal times the order is by key, once
}

TEST(WorkQueueTest, ADroppedKeyIsForgotten) {
  WorkQueue queue{Rng(1)};
  queue.Add("a", kStart);
  queue.Drop("a");
  EXPECT_EQ(queue.Get(kStart), std::nullopt);
  EXPECT_TRUE(queue.NextReady().infinite());
}

}  // namespace
}  // namespace crowdsurf::controller
