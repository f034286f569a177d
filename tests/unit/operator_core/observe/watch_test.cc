#include <gtest/gtest.h>

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

ObjectCache<int> IntCache() {
  return ObjectCache<int>([](const Json& object) -> std::optional<int> {
    if (!object.contains("value") || !object["value"].is_number_integer()) return std::nullopt;
    return object["value"].get<int>();
  });
}

WatchEvent Event(Type type, const char* name, Json value) {
  return {
      type, {{"metadata", {{"name", name}, {"namespace", "n"}}}, {"value", std::move(value)}}, "1"};
}

TEST(ObjectCacheTest, ReportsOnlyChangesOfWhatIsUsed) {
  auto cache = IntCache();
  EXPECT_TRUE(cache.Apply(Event(Type::kAdded, "a", 1)).has_value());
  EXPECT_FALSE(cache.Apply(Event(Type::kModified, "a", 1)).has_value());
  const auto change = cache.Apply(Event(Type::kModified, "a", 2));
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->before, 1);
  EXPECT_EQ(change->after, 2);
  EXPECT_FALSE(cache.Apply(Event(Type::kDeleted, "b", 2)).has_value());
  EXPECT_TRUE(cache.Apply(Event(Type::kDeleted, "a", 2)).has_value());
  EXPECT_EQ(cache.Find("n/a"), nullptr);
  EXPECT_FALSE(cache.Apply(Event(Type::kAdded, "c", "no number")).has_value());
  EXPECT_EQ(cache.unreadable(), 1u);
}

// What the operator does not use has changed: nobody is woken, and the next write is based on it.
TEST(ObjectCacheTest, AnEqualValueLeavesItsNewerVersion) {
  struct Versioned {
    int value = 0, version = 0;
    bool operator==(const Versioned& other) const { return value == other.value; }
  };
  ObjectCache<Versioned> cache([](const Json& object) -> std::optional<Versioned> {
    return Versioned{object["value"][0].get<int>(), object["value"][1].get<int>()};
  });
  EXPECT_TRUE(cache.Apply(Event(Type::kAdded, "a", {1, 3})).has_value());
  EXPECT_FALSE(cache.Apply(Event(Type::kModified, "a", {1, 4})).has_value());
  EXPECT_EQ(cache.Find("n/a")->version, 4);
}

TEST(ObjectCacheTest, ARelistFindsWhatTheWatchMissed) {
  auto cache = IntCache();
  cache.Apply(Event(Type::kAdded, "gone", 1));
  cache.Apply(Event(Type::kAdded, "same", 2));
  cache.Apply(Event(Type::kAdded, "changed", 3));
  const auto changes = cache.Replace({Event(Type::kAdded, "same", 2).object,
                                      Event(Type::kAdded, "changed", 4).object,
                                      Event(Type::kAdded, "new", 5).object});
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes[0].key, "n/gone");
  EXPECT_EQ(changes[1].key, "n/changed");
  EXPECT_EQ(changes[2].key, "n/new");
  EXPECT_EQ(cache.objects().size(), 3u);
}

const Time kStart = Time::FromNanoseconds(1);

TEST(WorkQueueTest, AKeyWaitsOnceAndComesAgainIfAddedWhileWorkedOn) {
  WorkQueue queue;
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
  WorkQueue queue;
  queue.AddAfter("a", kStart, Seconds(10));
  queue.AddAfter("a", kStart, Seconds(1));
  queue.AddAfter("a", kStart, Seconds(5));
  EXPECT_EQ(queue.NextReady(), kStart + Seconds(1));
  EXPECT_EQ(queue.Get(kStart), std::nullopt);
  EXPECT_EQ(queue.Get(kStart + Seconds(1)), "a");
}

TEST(WorkQueueTest, FailuresBackOffExponentiallyUntilForgotten) {
  WorkQueue queue({.least = Milliseconds(5), .most = Seconds(1)});
  EXPECT_EQ(queue.AddRateLimited("a", kStart), Milliseconds(5));
  EXPECT_EQ(queue.AddRateLimited("a", kStart), Milliseconds(10));
  for (int i = 0; i < 70; ++i) queue.AddRateLimited("a", kStart);
  EXPECT_EQ(queue.AddRateLimited("a", kStart), Seconds(1));
  queue.Forget("a");
  EXPECT_EQ(queue.AddRateLimited("a", kStart), Milliseconds(5));
}

TEST(WorkQueueTest, ABusyKeyCannotStarveAnother) {
  WorkQueue queue;
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
  WorkQueue queue;
  queue.Add("a", kStart);
  queue.Drop("a");
  EXPECT_EQ(queue.Get(kStart), std::nullopt);
  EXPECT_TRUE(queue.NextReady().infinite());
}

}  // namespace
}  // namespace crowdsurf::controller
