// Messages there and back, and bytes that are none. The version's bytes are written out here.
#include "coordinator-free-dht/core/wire/codec.h"

#include <gmock/gmock.h>

#include <iostream>

#include "base/rng.h"
#include "tests/unit/dht_core/network.h"

namespace crowdsurf::dht {
namespace {

template <class Id>
Id RandomId(Rng& rng) {
  std::array<uint8_t, Id::kBytes> bytes;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
  return Id(bytes);
}

RecordPtr RandomRecord(Rng& rng) {
  Record record;
  record.key = RandomId<Key>(rng);
  record.subkey = RandomId<PeerId>(rng);
  record.boot = rng.Next();
  record.sequence = rng.Next();
  record.written = WallTime::FromNanoseconds(static_cast<int64_t>(rng.Next() >> 2));
  record.expiry = record.written + Nanoseconds(static_cast<int64_t>(rng.Next() >> 2));
  record.value.resize(rng.Uniform(50));
  for (uint8_t& byte : record.value) byte = static_cast<uint8_t>(rng.Next());
  for (uint8_t& byte : record.public_key) byte = static_cast<uint8_t>(rng.Next());
  for (uint8_t& byte : record.signature) byte = static_cast<uint8_t>(rng.Next());
  return std::make_shared<const Record>(std::move(record));
}

std::vector<RecordPtr> RandomRecords(Rng& rng) {
  std::vector<RecordPtr> out(rng.Uniform(4));
  for (RecordPtr& record : out) record = RandomRecord(rng);
  return out;
}

Message RandomMessage(size_t kind, Rng& rng) {
  Message message{rng.Next(), FindRequest{RandomId<Key>(rng), rng.Bernoulli(0.5)}};
  switch (kind) {
    case 1: {
      FindReply reply;
      reply.contacts.resize(rng.Uniform(kMaxContacts + 1));
      for (Contact& contact : reply.contacts) {
        contact = {RandomId<PeerId>(rng), "10.0.0." + std::to_string(rng.Uniform(256)) + ":7946"};
      }
      reply.records = RandomRecords(rng);
      message.body = std::move(reply);
      break;
    }
    case 2:
      message.body = StoreRequest{RandomRecords(rng)};
      break;
    case 3:
      message.body =
          StoreReply{static_cast<uint16_t>(rng.Next()), static_cast<uint16_t>(rng.Next())};
      break;
    case 4: {
      WatchRequest request{RandomId<Key>(rng), Seconds(30), {}};
      request.have.resize(rng.Uniform(5));
      for (Have& have : request.have) have = {RandomId<PeerId>(rng), rng.Next()};
      message.body = std::move(request);
      break;
    }
    case 5:
      message.body = WatchReply{rng.Bernoulli(0.5), RandomRecords(rng)};
      break;
    case 6:
      message.body = WatchPush{RandomRecords(rng)};
      break;
    default:
      break;
  }
  if (IsReply(message)) {
    message.clock = {WallTime::FromNanoseconds(static_cast<int64_t>(rng.Next())), {}, rng.Next()};
    for (uint8_t& byte : message.clock.public_key) byte = static_cast<uint8_t>(rng.Next());
  }
  return message;
}

constexpr size_t kKinds = std::variant_size_v<decltype(Message::body)>;

TEST(CodecTest, EveryKindOfMessageComesBackAsItWas) {
  Rng rng(7);
  for (int i = 0; i < 700; ++i) {
    const Bytes bytes = Encode(RandomMessage(static_cast<size_t>(i) % kKinds, rng));
    const auto decoded = Decode(bytes);
    ASSERT_TRUE(decoded.has_value());
    EXPECT_EQ(decoded->body.index(), static_cast<size_t>(i) % kKinds);
    EXPECT_EQ(Encode(*decoded), bytes);
  }
}

TEST(CodecTest, FieldsSurviveNotOnlyBytes) {
  Rng rng(8);
  const RecordPtr record = RandomRecord(rng);
  EXPECT_EQ(DecodeRecord(EncodeRecord(*record)), *record);
  const auto find = Decode(Encode({42, FindRequest{record->key, true}}));
  ASSERT_TRUE(find.has_value());
  EXPECT_EQ(find->id, 42u);
  EXPECT_EQ(std::get<FindRequest>(find->body).target, record->key);
  EXPECT_TRUE(std::get<FindRequest>(find->body).values);
  const ClockReading clock{record->written, record->public_key, 5};
  const auto reply = Decode(Encode({42, StoreReply{1, 0}, clock}));
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->clock.wall, clock.wall);
  EXPECT_EQ(reply->clock.public_key, clock.public_key);
  EXPECT_EQ(reply->clock.boot, 5u);
}

TEST(CodecTest, ALifeThatIsNegativeOrDoesNotFitIsRefused) {
  const auto taken = [](int64_t written, int64_t expiry) {
    Record record;
    record.written = WallTime::FromNanoseconds(written);
    record.expiry = WallTime::FromNanoseconds(expiry);
    return DecodeRecord(EncodeRecord(record)).has_value();
  };
  EXPECT_TRUE(taken(5, 5));
  EXPECT_TRUE(taken(0, INT64_MAX));
  EXPECT_FALSE(taken(5, 4));
  EXPECT_FALSE(taken(-1, 4));
  EXPECT_FALSE(taken(INT64_MIN, INT64_MAX));
}

TEST(CodecTest, ATruncatedOrLengthenedMessageIsRefused) {
  Rng rng(9);
  for (size_t kind = 0; kind < kKinds; ++kind) {
    Bytes bytes = Encode(RandomMessage(kind, rng));
    for (size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_FALSE(Decode(ByteView(bytes).first(n)).has_value()) << "kind " << kind << " at " << n;
    }
    bytes.push_back(0);
    EXPECT_FALSE(Decode(bytes).has_value());
  }
}

TEST(CodecTest, WrongVersionKindBoolOrCountIsRefused) {
  const Message good{1, FindRequest{KeyOf("x"), true}};
  Bytes bytes = Encode(good);
  ASSERT_TRUE(Decode(bytes).has_value());
  bytes[0] = 1;
  EXPECT_FALSE(Decode(bytes).has_value());
  bytes = Encode(good);
  bytes[1] = kKinds;
  EXPECT_FALSE(Decode(bytes).has_value());
  bytes = Encode(good);
  bytes.back() = 2;
  EXPECT_FALSE(Decode(bytes).has_value());
  // A count of four thousand million records with nothing behind it.
  bytes = Encode({1, StoreRequest{}});
  std::fill(bytes.end() - 4, bytes.end(), 0xff);
  EXPECT_FALSE(Decode(bytes).has_value());
}

TEST(CodecTest, MutatedBytesNeverCrashAndWhatIsAcceptedEncodesToTheSameBytes) {
  constexpr uint64_t kSeed = 1234;
  Rng rng(kSeed);
  int accepted = 0;
  for (int i = 0; i < 30'000; ++i) {
    Bytes bytes = Encode(RandomMessage(rng.Uniform(kKinds), rng));
    const uint64_t mutations = 1 + rng.Uniform(8);
    for (uint64_t m = 0; m < mutations && !bytes.empty(); ++m) {
      const size_t at = rng.Uniform(std::min<size_t>(bytes.size(), 200));
      switch (rng.Uniform(4)) {
        case 0:
          bytes[at] = static_cast<uint8_t>(rng.Next());
          break;
        case 1:
          bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(at));
          break;
        case 2:
          bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at),
                       static_cast<uint8_t>(rng.Next()));
          break;
        default:
          bytes.resize(at);
      }
    }
    const auto decoded = Decode(bytes);
    if (!decoded) continue;
    ++accepted;
    ASSERT_EQ(Encode(*decoded), bytes) << "seed " << kSeed << " case " << i;
  }
  EXPECT_GT(accepted, 1000);  // else the mutations are too harsh to reach deep
}

bool Taken(decltype(Message::body) body) {
  return Decode(Encode(Message{1, std::move(body)})).has_value();
}

TEST(CodecTest, EveryListAndTextIsBounded) {
  const auto contacts = [](size_t n) { return FindReply{std::vector<Contact>(n), {}}; };
  EXPECT_TRUE(Taken(contacts(64)));
  EXPECT_FALSE(Taken(contacts(65)));
  const auto named = [](size_t length) {
    return FindReply{{Contact{PeerId(), std::string(length, 'x')}}, {}};
  };
  EXPECT_TRUE(Taken(named(261)));
  EXPECT_FALSE(Taken(named(262)));
  const auto have = [](size_t n) {
    return WatchRequest{KeyOf("x"), Seconds(1), std::vector<Have>(n)};
  };
  EXPECT_TRUE(Taken(have(1024)));
  EXPECT_FALSE(Taken(have(1025)));
  const auto records = [](size_t n, size_t bytes) {
    Record record;
    record.value.resize(bytes);
    return WatchPush{std::vector<RecordPtr>(n, std::make_shared<const Record>(record))};
  };
  EXPECT_TRUE(Taken(records(1024, 0)));
  EXPECT_FALSE(Taken(records(1025, 0)));
  EXPECT_TRUE(Taken(records(1, 65536)));
  EXPECT_FALSE(Taken(records(1, 65537)));
  EXPECT_TRUE(Taken(WatchRequest{KeyOf("x"), Duration(), {}}));
  EXPECT_FALSE(Taken(WatchRequest{KeyOf("x"), Nanoseconds(-1), {}}));
}

TEST(CodecTest, AMessageOfTwoMebibytesIsTakenAndNoLongerOne) {
  constexpr size_t kLimit = size_t{2} << 20;
  const auto message = [](size_t last) {
    StoreRequest store;
    for (size_t i = 0; i < 32; ++i) {
      Record record;
      record.value.resize(i < 31 ? 65536 : last);
      store.records.push_back(std::make_shared<const Record>(std::move(record)));
    }
    return Encode(Message{1, std::move(store)});
  };
  const size_t last = kLimit - message(0).size();
  EXPECT_EQ(message(last).size(), kLimit);
  EXPECT_TRUE(Decode(message(last)).has_value());
  EXPECT_FALSE(Decode(message(last + 1)).has_value());
}

TEST(CodecTest, TheSecondVersionOnTheWireStaysAsItIs) {
  const Key target = KeyOf("x");
  Bytes wanted = {2, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};  // version, kind, id
  wanted.insert(wanted.end(), target.bytes().begin(), target.bytes().end());
  wanted.push_back(1);
  EXPECT_EQ(Encode({0x1122334455667788, FindRequest{target, true}}), wanted);
  Bytes reply = {2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0x07, 0, 0, 0, 0, 0, 0, 0};  // ..., wall time
  reply.insert(reply.end(), 32, 0xab);                                      // key
  reply.insert(reply.end(), {9, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x01, 0x04, 0x03});
  ClockReading clock{WallTime::FromNanoseconds(7), {}, 9};
  clock.public_key.fill(0xab);
  EXPECT_EQ(Encode({0, StoreReply{0x0102, 0x0304}, clock}), reply);
}

TEST(CodecTest, PureNoiseIsRefused) {
  Rng rng(5);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes(rng.Uniform(300));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
    if (bytes.size() > 2) {
      bytes[0] = 2;  // a good version and kind, so that noise gets past the door
      bytes[1] = static_cast<uint8_t>(rng.Uniform(kKinds));
    }
    const auto decoded = Decode(bytes);
    if (decoded) {
      EXPECT_EQ(Encode(*decoded), bytes);
    }
  }
}

}  // namespace
}  // namespace crowdsurf::dht
