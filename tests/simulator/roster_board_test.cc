// What agents see of each other's records where clocks are off.
#include "simulator/engine/roster_board.h"

#include <gtest/gtest.h>

#include <set>

#include "base/digest.h"

namespace crowdsurf::simulator {
namespace {

constexpr uint64_t kSeed = 5;
constexpr Duration kLife = Milliseconds(900);

// Which of two nodes have seen the other's record after twelve seconds, in which both renew theirs.
std::set<int> SeersWhere(Duration ahead) {
  EventQueue queue;
  Network network(queue, Rng(kSeed), {});
  std::set<int> seers;
  RosterBoard board(queue, network, Rng(kSeed), 0, [&](int node, const auto& records) {
    if (!records.empty()) seers.insert(node);
  });
  board.clocks().Set(1, ahead);
  for (const int node : {0, 1}) board.Watch(node, "job");
  for (int i = 0; i < 40; ++i) {
    for (const int node : {0, 1}) {
      const PeerId owner(Sha256(AsBytes(node == 0 ? "zero" : "one")).bytes());
      board.Put(node, owner, {.key = "job", .value = {}, .ttl = kLife});
    }
    const Time end = queue.now() + kLife * (1.0 / 3);
    queue.At(end, [] {});
    while (queue.now() < end && queue.RunOne(end)) {
    }
  }
  return seers;
}

// They are all that is left of a job. An agent hears of a clock from its owner, however old the
// owner's records look by it.
TEST(RosterBoardTest, TwoNodesSeeEachOtherWhateverTheirClocksSay) {
  for (const Duration ahead : {Duration(), Seconds(5), Seconds(-5)})
    EXPECT_EQ(SeersWhere(ahead), (std::set{0, 1})) << ahead.seconds() << " s ahead";
}

}  // namespace
}  // namespace crowdsurf::simulator
