// Messages of peers as bytes. Each kind comes back as it was sent; mutated bytes are refused, or
// are the only encoding of what they say.
#include "worker/core/port/messages.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

template <class Id>
Id AnyId(Rng& rng) {
  std::array<uint8_t, Id::kBytes> bytes;
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng.Next());
  return Id(bytes);
}

Contact AnyContact(Rng& rng) {
  return {AnyId<PeerId>(rng), "charlm-3", "127.0.0.1:80", "127.0.0.1:81"};
}

// One of every kind, with every list filled.
std::vector<Message> OneOfEach(Rng& rng) {
  const auto view = AnyId<ViewHash>(rng);
  const Committed committed{AveragingId(7), AnyId<Digest>(rng), 123.5};
  Seat seat{
      .member = {.id = AnyId<PeerId>(rng), .cell = 3, .joined_unix_ms = -5, .on_demand = true},
      .steward = AnyId<PeerId>(rng),
      .steward_joined_ms = 9,
      .sitting = 2,
      .first_averaging = AveragingId(8)};
  const Vacancy vacancy{AnyId<PeerId>(rng), 4};
  const Bytes blob = {1, 2, 3, 4, 5};
  using namespace message;
  return {RoundFrame{view, 3, AveragingId(9), 1, 17, blob},
          DueFor{view, AveragingId(10), committed, AnyId<Digest>(rng)},
          Begin{view, AveragingId(10)},
          SeatingNews{view, {seat}, {vacancy}, {AnyContact(rng)}, AnyId<Digest>(rng)},
          JoinRequest{{.id = AnyId<PeerId>(rng), .joined_unix_ms = 5, .bandwidth_class = 6},
                      AnyContact(rng),
                      AveragingId(11),
                      AveragingId(4),
                      true,
                      AnyId<Digest>(rng),
                      LineageRank{8, AnyId<ViewHash>(rng)}},
          JoinAnswer{JoinAnswer::Kind::kRefused, committed, {AnyContact(rng)}, "because", {7, 8}},
          ViewNews{blob, {seat, seat}, {vacancy}, {AnyContact(rng)}, committed, 12.5},
          ViewAsk{},
          ViewOpen{view, 17},
          ViewPromise{view, 17, 17, 5, blob, AveragingId(9)},
          ViewAccept{view, 17, blob},
          ViewAccepted{view, 17, 33},
          BranchOpen{view, 2},
          BranchJoin{view, 2, AveragingId(11)},
          BranchView{view, 2, blob},
          BranchHeld{view, 2},
          Leaving{view},
          CountedAsk{AnyId<InstanceId>(rng)},
          CountedAnswer{AnyId<InstanceId>(rng), true},
          ListInUse{view, AveragingId(9), 1, 17, {seat}, {vacancy}},
          ListAsk{AnyId<InstanceId>(rng)},
          Pair{view, {PairWord::Kind::kDone, 12}},
          ViewVoteAsk{view, AnyId<ViewHash>(rng)},
          ViewVote{view, ViewVote::Kind::kAccepted, 17},
          Neighbour{view, {EdgeWord::Kind::kNotYet, 12}},
          LeasesWanted{view, AveragingId(10)},
          LedgerAsk{view, AveragingId(10), {AveragingId(9), 77}},
          LedgerNews{view, blob}};
}

TEST(MessagesTest, EveryKindComesBackAsItWasSent) {
  Rng rng(1);
  const auto all = OneOfEach(rng);
  ASSERT_EQ(all.size(), std::variant_size_v<Message>);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].index(), i);
    const auto back = DecodeMessage(EncodeMessage(all[i]));
    ASSERT_TRUE(back) << i;
    EXPECT_TRUE(*back == all[i]) << i;
  }
}

TEST(MessagesTest, MutatedBytesAreRefusedOrCanonical) {
  Rng rng(2);
  for (int i = 0; i < 40'000; ++i) {
    const auto all = OneOfEach(rng);
    Bytes bytes = EncodeMessage(all[rng.Uniform(all.size())]);
    const size_t edits = 1 + rng.Uniform(4);
    for (size_t e = 0; e < edits; ++e)
      bytes[rng.Uniform(bytes.size())] = static_cast<uint8_t>(rng.Next());
    if (rng.Bernoulli(0.2)) bytes.resize(rng.Uniform(bytes.size() + 1));
    const auto message = DecodeMessage(bytes);
    if (message) {
      EXPECT_EQ(EncodeMessage(*message), bytes);
    }
  }
}

TEST(MessagesTest, CountsBeyondTheInputAllocateNothing) {
  ByteWriter out;
  out.U8(3);  // SeatingNews
  out.Raw(ViewHash().view());
  out.U32(0xFFFFFFFF);
  EXPECT_FALSE(DecodeMessage(out.bytes()));
  EXPECT_FALSE(DecodeMessage({}));
}

}  // namespace
}  // namespace crowdsurf::worker
