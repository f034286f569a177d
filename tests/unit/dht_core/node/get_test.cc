// What a search for records gives, and when it ends.
#include <gmock/gmock.h>

#include "tests/unit/dht_core/lone_node.h"

namespace crowdsurf::dht {
namespace {

const Key kRoster = KeyOf("charlm/roster/0");

TEST(GetTest, WithEnoughItEndsAtTheFirstHolder) {
  LoneNode lone;
  LoneNode::Player& peer = lone.Meet();
  lone.Put(kRoster, Seconds(60));
  lone.Run(Seconds(1));
  lone.sent.clear();
  lone.Get(kRoster, 1);
  ASSERT_EQ(lone.gets.size(), 1u) << "this node holds it";
  EXPECT_EQ(lone.gets[0].records.size(), 1u);
  EXPECT_TRUE(lone.sent.empty());
  lone.Get(kRoster, 2);
  lone.Get(kRoster, 0);
  EXPECT_EQ(lone.gets.size(), 1u);
  const auto asked = lone.SentOf<FindRequest>(&peer.contact);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_TRUE(asked[0].second.values);
  EXPECT_EQ(asked[0].second.target, kRoster);
  lone.Run(Milliseconds(5));
  EXPECT_EQ(lone.gets.size(), 3u) << "one search ends with nobody left";
}

TEST(GetTest, ItGivesTheNewestRecordOfEachOwnerAndNoBadOne) {
  LoneNode lone;
  LoneNode::Player &a = lone.Meet(), &b = lone.Meet(), &c = lone.Add();
  const auto signed_by = [&](const LoneNode::Player& owner, uint64_t sequence) {
    return lone.Signed(owner, kRoster, sequence, Seconds(60));
  };
  Record forged = *signed_by(c, 9);
  forged.value = {6};
  const std::vector<RecordPtr> of_a = {signed_by(a, 2), signed_by(c, 1),
                                       std::make_shared<const Record>(forged)};
  const std::vector<RecordPtr> of_b = {signed_by(a, 1), signed_by(b, 7),
                                       lone.Signed(c, KeyOf("another"), 8, Seconds(60)),
                                       lone.Signed(c, kRoster, 8, Duration())};
  lone.answer = [&](const Contact& of,
                    const LoneNode::Body& request) -> std::optional<LoneNode::Body> {
    const auto* find = std::get_if<FindRequest>(&request);
    if (find == nullptr || !find->values) return LoneNode::Agree(request);
    return FindReply{{}, of == a.contact ? of_a : of_b};
  };
  lone.Get(kRoster, 0);
  lone.Run(Milliseconds(5));
  ASSERT_EQ(lone.gets.size(), 1u);
  std::map<PeerId, uint64_t> got;
  for (const RecordPtr& record : lone.gets[0].records) got[record->subkey] = record->sequence;
  const std::map<PeerId, uint64_t> wanted = {
      {a.contact.id, 2}, {b.contact.id, 7}, {c.contact.id, 1}};
  EXPECT_EQ(got, wanted);
  EXPECT_EQ(lone.Count("crowdsurf_dht_records_forged_total"), 1);
}

TEST(GetTest, SearchesWaitTheirTurnAndBeyondThatAreAnsweredWithNothing) {
  NodeConfig config;
  config.lookups = 1;
  config.lookups_waiting = 1;
  LoneNode lone(config);
  lone.Meet().silent = true;
  for (int i = 0; i < 3; ++i) lone.Get(KeyOf(std::to_string(i)), 0);
  ASSERT_EQ(lone.gets.size(), 1u);
  EXPECT_EQ(lone.gets[0].key, KeyOf("2"));
  EXPECT_EQ(lone.Count("crowdsurf_dht_lookups_shed_total"), 1);
  lone.Run(Milliseconds(31));
  ASSERT_EQ(lone.gets.size(), 2u);
  EXPECT_EQ(lone.gets[1].key, KeyOf("0"));
  lone.Run(Seconds(1));
  ASSERT_EQ(lone.gets.size(), 3u);
  EXPECT_EQ(lone.gets[2].key, KeyOf("1"));
}

}  // namespace
}  // namespace crowdsurf::dht
