// What a peer learns of its links in one round, and how wide its windows are in the next.
#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/metrics.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/averaging/group_rounds.h"
#include "worker/core/port/config.h"
#include "worker/core/port/messages.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {
namespace {

constexpr double kBytes = 2;  // of a chunk: one value of float16

// One of two members. Both own 1024 chunks of one value.
struct Member {
  PeerConfig config;
  MetricRegistry registry;
  PeerMetrics metrics{registry};
  GroupRounds rounds{config, metrics, Logger(nullptr, "test")};
  Actions out;

  Member(size_t self, const View& view, const Seating& seating) {
    config.job = "job";
    config.id = PeerAt(self);
    config.chunk_elements = 1;
    rounds.SetVector({.schema = Sha256(AsBytes("table")), .elements = 2048});
    rounds.OnView(Time(), view, seating.hash(), ParentEnd::kOrderly, out);
  }
};

class GroupWindowsTest : public testing::Test {
 protected:
  GroupWindowsTest() {
    view_.grid = Grid{{2}};
    for (size_t i = 0; i < 2; ++i)
      view_.members.push_back({.id = PeerAt(i), .cell = static_cast<CellIndex>(i)});
    view_.witnesses = {PeerAt(0)};
    seating_ = Seating(view_, HashOf(view_, "job"));
    self_.emplace(0, view_, seating_);
    other_.emplace(1, view_, seating_);
  }

  // Both have opened it.
  void Open(uint64_t averaging) {
    GroupRounds::Opening opening;
    opening.averaging = AveragingId(averaging);
    opening.stake = {8, 8, {}};
    for (Member* member : {&*self_, &*other_}) {
      member->out.clear();
      member->rounds.OpenRound(now_, opening, seating_, {}, member->out);
    }
    for (const Action& action : self_->out)
      if (const auto* open = std::get_if<OpenBuffers>(&action)) instance_ = open->instance;
    self_->out.clear();
    for (const Action& action : other_->out) {
      const auto* send = std::get_if<Send>(&action);
      const auto message = send == nullptr ? std::nullopt : DecodeMessage(send->body);
      if (!message || !std::holds_alternative<message::RoundFrame>(*message)) continue;
      self_->rounds.OnFrame(now_, PeerAt(1), std::get<message::RoundFrame>(*message), self_->out);
    }
    given_ = 0;
    TakeInputs();
  }
  // Of the inputs that are under way, all results, after that long. How many inputs went out then.
  size_t Answer(Duration after) {
    now_ = now_ + after;
    for (; given_ < under_way_.size(); ++given_)
      self_->rounds.OnChunk(now_,
                            {.kind = ChunkArrived::Kind::kResult,
                             .instance = instance_,
                             .from = PeerAt(1),
                             .chunk = under_way_[given_],
                             .mask = RankSet::FirstRanks(2),
                             .hash = 7},
                            self_->out);
    return TakeInputs();
  }
  size_t TakeInputs() {
    const size_t before = given_ == 0 ? 0 : under_way_.size();
    if (given_ == 0) under_way_.clear();
    for (const Action& action : self_->out)
      if (const auto* chunk = std::get_if<Chunk>(&action))
        if (const auto* input = std::get_if<SendInput>(&chunk->action))
          under_way_.push_back(input->chunk);
    self_->out.clear();
    return under_way_.size() - before;
  }
  double gauge() { return self_->metrics.send_window_bytes->value(); }

  View view_;
  Seating seating_;
  std::optional<Member> self_, other_;
  Time now_ = Time::FromNanoseconds(1'000'000'000);
  InstanceId instance_;
  std::vector<ChunkIndex> under_way_;  // of this round, in order
  size_t given_ = 0;                   // results of them
};

TEST_F(GroupWindowsTest, AWindowDoublesEachRoundTripAndIsKeptForTheNextRound) {
  Open(1);
  EXPECT_EQ(under_way_.size(), 8U);
  EXPECT_EQ(gauge(), 8 * kBytes);
  self_->rounds.OnChunksLeft(PeerAt(1), 8, Milliseconds(80));
  EXPECT_EQ(Answer(Milliseconds(80)), 8U) << "when these left, nobody knew of the link";
  EXPECT_EQ(Answer(Milliseconds(80)), 16U) << "eight for the results, and eight for the window";
  self_->rounds.LeaveOpen(now_, self_->out);
  other_->rounds.LeaveOpen(now_, other_->out);
  now_ = now_ + Seconds(60);
  Open(2);
  EXPECT_EQ(under_way_.size(), 16U);
  EXPECT_EQ(gauge(), 16 * kBytes);
}

TEST_F(GroupWindowsTest, WithoutARoundTripNothingIsLearnt) {
  Open(1);
  self_->rounds.OnChunksLeft(PeerAt(1), 8, std::nullopt);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Answer(Milliseconds(80)), 8U);
  EXPECT_EQ(gauge(), 8 * kBytes);
}

TEST_F(GroupWindowsTest, ResultsThatAreRefusedSayNothing) {
  Open(1);
  self_->rounds.OnChunksLeft(PeerAt(1), 8, Milliseconds(80));
  for (int i = 0; i < 20; ++i) {
    now_ = now_ + Milliseconds(80);
    for (const ChunkIndex chunk : {ChunkIndex(0), ChunkIndex(1500), ChunkIndex(5000)})
      self_->rounds.OnChunk(now_,
                            {.kind = ChunkArrived::Kind::kResult,
                             .instance = instance_,
                             .from = PeerAt(1),
                             .chunk = chunk,
                             .assigned = 3,
                             .mask = RankSet::FirstRanks(2),
                             .hash = 7},
                            self_->out);
  }
  EXPECT_EQ(gauge(), 8 * kBytes);
  EXPECT_EQ(Answer(Milliseconds(1)), 8U);
}

}  // namespace
}  // namespace crowdsurf::worker
