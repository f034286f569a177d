// The estimates of memory against what the heap says, from which the simulator's budget follows.
#include <gmock/gmock.h>

#include "tests/unit/dht_core/heap/heap_use.h"
#include "tests/unit/dht_core/lone_node.h"

namespace crowdsurf::dht {
namespace {

constexpr Time kStart = Time::FromNanoseconds(1'000'000'000);

PeerId Peer(uint64_t number) { return PeerId(KeyOf(std::to_string(number)).bytes()); }
Contact At(uint64_t number) { return {Peer(number), "10.11.12.13:" + std::to_string(number)}; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kAllocatorsOwn = 0.15;  // their allocator counts no header, and rounds nothing up
#else
constexpr double kAllocatorsOwn = 0;
#endif

class MemoryTest : public testing::Test {
 protected:
  // What `fill` adds to the heap is what `part` says, within `tolerance` of it.
  template <class Part>
  void Compare(Part& part, const std::function<void()>& fill, double tolerance = 0.25) {
    const size_t said = part.MemoryBytes();
    const size_t before = HeapInUse();
    fill();
    const auto grown = static_cast<double>(HeapInUse() - before);
    const auto estimated = static_cast<double>(part.MemoryBytes() - said);
    EXPECT_GT(grown, 10'000);
    EXPECT_GT(estimated, grown * (1 - tolerance)) << grown;
    EXPECT_LT(estimated, grown * (1 + tolerance + kAllocatorsOwn)) << grown;
  }
  NodeConfig config_;
};

TEST_F(MemoryTest, OfTheRoutingTable) {
  RoutingTable table(PeerId(), config_);
  // Within less than what a contact would cost whose endpoint lay outside of it.
  Compare(
      table,
      [&] {
        for (uint64_t i = 1; i < 500; ++i) table.OnReply(kStart, At(i), Milliseconds(1));
      },
      0.05);
}

// It is most of what a busy node holds. Each shape has more of one term: records, keys, senders.
TEST_F(MemoryTest, OfTheStore) {
  struct Shape {
    uint64_t keys, sources;
  };
  for (const Shape& shape : {Shape{1, 1}, Shape{300, 1}, Shape{1, 300}}) {
    SCOPED_TRACE(testing::Message() << shape.keys << " keys, " << shape.sources << " sources");
    Store store(config_);
    const auto fill = [&] {
      for (uint64_t i = 0; i < 300; ++i) {
        Record record;
        record.key = KeyOf("key/" + std::to_string(i % shape.keys));
        record.subkey = Peer(i);
        record.expiry = WallTime() + Seconds(60);
        record.value = Bytes(100);
        store.Put(kStart, WallTime(), std::make_shared<const Record>(record),
                  Peer(i % shape.sources));
      }
    };
    Compare(store, fill, 0.06);
  }
}

TEST_F(MemoryTest, OfTheSubscriptions) {
  Subscriptions subscriptions(config_);
  Compare(subscriptions, [&] {
    for (uint64_t i = 0; i < 300; ++i) {
      subscriptions.Add(kStart, KeyOf(std::to_string(i % 30)), At(i), Seconds(9));
    }
  });
}

TEST_F(MemoryTest, OfTheOpenRequests) {
  Requests requests(config_, 1);
  Compare(requests, [&] {
    for (uint64_t i = 0; i < 300; ++i) {
      requests.Add(kStart, At(i), Ping{}, Milliseconds(1), Milliseconds(2));
    }
  });
}

TEST_F(MemoryTest, OfTheLimiter) {
  SourceLimiter limiter(config_);
  Compare(limiter, [&] {
    for (uint64_t i = 0; i < 300; ++i) limiter.Take(kStart, Peer(i), 1);
  });
}

TEST_F(MemoryTest, OfTheReplicaTracker) {
  const RoutingTable table(PeerId(), config_);
  ReplicaTracker tracker(PeerId(), config_, table, Rng(1));
  Compare(tracker, [&] {
    for (uint64_t i = 0; i < 100; ++i) {
      const Key key = KeyOf(std::to_string(i));
      tracker.Follow(key);
      std::vector<Contact> found;
      for (uint64_t j = 0; j < 5; ++j) found.push_back(At(j));
      tracker.OnLookedUp(kStart, key, std::move(found));
    }
  });
}

// Parts count themselves, and each is counted once.
TEST_F(MemoryTest, OfANodeThatHoldsNothing) {
  LoneNode lone;
  EXPECT_EQ(lone.node().MemoryBytes(), sizeof(Node));
}

TEST_F(MemoryTest, OfANode) {
  LoneNode lone;
  std::vector<LoneNode::Player*> peers;
  peers.reserve(30);
  for (int i = 0; i < 30; ++i) peers.push_back(&lone.Meet());
  lone.Forget();  // what was sent until now is not the node's
  Compare(lone.node(), [&] {
    for (LoneNode::Player* peer : peers) {
      lone.Say(*peer, StoreRequest{{lone.Signed(*peer, KeyOf("roster"), 1, Seconds(600))}});
      lone.Say(*peer, WatchRequest{KeyOf("roster"), Seconds(30), {}});
    }
    for (int i = 0; i < 30; ++i) {
      lone.Put(KeyOf("own/" + std::to_string(i)), Seconds(600));
      lone.Watch(KeyOf("own/" + std::to_string(i)));
    }
    lone.Run(Seconds(2));
    lone.Forget();
  });
}

// Most of it is who holds the own records.
TEST_F(MemoryTest, OfANodeWithRecordsOfItsOwn) {
  LoneNode lone;
  for (int i = 0; i < 30; ++i) lone.Meet();
  lone.Run(Seconds(20));  // its own search is over
  lone.Forget();
  Compare(
      lone.node(),
      [&] {
        for (int i = 0; i < 100; ++i) lone.Put(KeyOf(std::to_string(i)), Seconds(600), 1);
        lone.Run(Seconds(2));
        lone.Forget();
      },
      0.1);
}

// Most of it is the records that are known of the watched keys.
TEST_F(MemoryTest, OfANodeThatWatches) {
  LoneNode lone;
  std::vector<LoneNode::Player*> peers;
  peers.reserve(30);
  for (int i = 0; i < 30; ++i) peers.push_back(&lone.Meet());
  lone.Run(Seconds(20));  // its own search is over
  lone.Forget();
  Compare(
      lone.node(),
      [&] {
        for (int key = 0; key < 10; ++key) {
          const Key watched = KeyOf(std::to_string(key));
          lone.Watch(watched);
          for (LoneNode::Player* peer : peers)
            lone.Say(*peers[0], WatchPush{{lone.Signed(*peer, watched, 1, Seconds(600))}}, 0);
        }
        lone.Run(Seconds(2));
        lone.Forget();
      },
      0.1);
}

// Each search has heard of as many peers as it keeps, and most of them do not answer.
TEST_F(MemoryTest, OfANodeThatSearches) {
  LoneNode lone;
  uint64_t number = 0;
  lone.answer = [&](const Contact&, const LoneNode::Body&) {
    FindReply reply;
    for (size_t i = 0; i < kMaxContacts; ++i) reply.contacts.push_back(At(++number));
    return reply;
  };
  for (int i = 0; i < 3; ++i) lone.Meet();
  lone.Run(Seconds(20));  // its own search is over
  lone.Forget();
  const auto search = [&] {
    for (int i = 0; i < 20; ++i) lone.Get(KeyOf(std::to_string(i)), 0);
    lone.Run(Milliseconds(5));
    lone.Forget();
  };
  Compare(lone.node(), search, 0.3);
  EXPECT_TRUE(lone.gets.empty()) << "they go on";
}

}  // namespace
}  // namespace crowdsurf::dht
