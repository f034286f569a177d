// Rounds that are dropped and opened anew: only such as gave and took nothing.
#include "worker/core/averaging/group_rounds.h"
#include "base/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/digest.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/averaging/group_plan.h"
#include "worker/core/port/config.h"
#include "worker/core/port/messages.h"
#include "worker/core/port/peer_metrics.h"
#include "worker/core/round/round_codec.h"

namespace crowdsurf::worker {
namespace {

PeerConfig Config() {
  PeerConfig config;
  config.job = "job";
  config.id = PeerAt(0);
  config.chunk_elements = 1;
  return config;
}

// This peer is the first of two members of one group; the other one never says a word. Witnesses:
// this peer alone, so that its ballots end.
class GroupRoundsTest : public testing::Test {
 protected:
  GroupRoundsTest() {
    view_.grid = Grid{{2}};
    for (int i = 0; i < 2; ++i)
      view_.members.push_back({.id = PeerAt(static_cast<size_t>(i)),
                               .cell = static_cast<CellIndex>(i),
                               .joined_unix_ms = i});
    view_.witnesses = {PeerAt(0)};
    seating_ = Seating(view_, HashOf(view_, "job"));
    rounds_.SetVector({.schema = Sha256(AsBytes("table")), .elements = 2048});
    rounds_.OnView(now_, view_, seating_.hash(), ParentEnd::kOrderly, out_);
    opening_.averaging = AveragingId(1);
    opening_.stake = {8, 8, {}};
    rounds_.OpenRound(now_, opening_, seating_, {}, out_);
  }

  // What `frame` is answered with, when PeerAt(1) says it in a round of `of` that is not open here.
  std::vector<ByeReason> ByesFor(const ViewHash& of, FrameBody body) {
    out_.clear();
    message::RoundFrame message{.view = of,
                                .epoch = 0,
                                .averaging = AveragingId(1),
                                .round = 0,
                                .group = 0,
                                .frame = EncodeFrame({InstanceId(), std::move(body)})};
    rounds_.OnFrame(now_, PeerAt(1), message, out_);
    return Byes();
  }

  // The BYEs to PeerAt(1) so far.
  std::vector<ByeReason> Byes() const {
    std::vector<ByeReason> byes;
    for (const Action& action : out_) {
      const auto* send = std::get_if<Send>(&action);
      const auto answer = send == nullptr ? std::nullopt : DecodeMessage(send->body);
      if (!answer || !std::holds_alternative<message::RoundFrame>(*answer)) continue;
      const auto frame = DecodeFrame(std::get<message::RoundFrame>(*answer).frame);
      if (!frame || send->to != PeerAt(1)) continue;
      if (const auto* bye = std::get_if<Bye>(&frame->body)) byes.push_back(bye->reason);
    }
    return byes;
  }

  // The folds asked for so far.
  std::vector<FoldChunk> Folds() const {
    std::vector<FoldChunk> folds;
    for (const Action& action : out_)
      if (const auto* chunk = std::get_if<Chunk>(&action))
        if (const auto* fold = std::get_if<FoldChunk>(&chunk->action)) folds.push_back(*fold);
    return folds;
  }

  // `again` of the READYs so far.
  std::vector<bool> Readys() const {
    std::vector<bool> again;
    for (const Action& action : out_) {
      const auto* send = std::get_if<Send>(&action);
      const auto message = send == nullptr ? std::nullopt : DecodeMessage(send->body);
      if (!message || !std::holds_alternative<message::RoundFrame>(*message)) continue;
      const auto frame = DecodeFrame(std::get<message::RoundFrame>(*message).frame);
      if (!frame) continue;
      if (const auto* ready = std::get_if<Ready>(&frame->body)) again.push_back(ready->again);
    }
    return again;
  }

  View view_;
  GroupRounds::Opening opening_;
  PeerConfig config_ = Config();
  MetricRegistry registry_;
  PeerMetrics metrics_{registry_};
  GroupRounds rounds_{config_, metrics_, Logger(nullptr, "test")};
  Seating seating_;
  Time now_ = Time::FromNanoseconds(1'000'000'000);
  Actions out_;
};

TEST_F(GroupRoundsTest, ARoundThatOnlySaidReadyCanBeOpenedAnew) {
  EXPECT_TRUE(rounds_.pristine());
  rounds_.Suspend(now_, out_);
  EXPECT_FALSE(rounds_.open());
}

// A link is said to be refused, and its peer lives: without it here the round would have no end.
TEST_F(GroupRoundsTest, AMemberThatIsHeardAfterItWasCalledDownIsInTheRoundAgain) {
  view_.witnesses = {PeerAt(1), PeerAt(0)};  // no quorum without it: nobody leaves it out
  seating_ = Seating(view_, HashOf(view_, "job"));
  rounds_.OnView(now_, view_, seating_.hash(), ParentEnd::kBrokeUp, out_);
  rounds_.OpenRound(now_, opening_, seating_, {}, out_);
  rounds_.OnPeerDown(now_, PeerAt(1), SuspicionCause::kReset, out_);
  const std::vector<FoldChunk> folds = Folds();
  ASSERT_FALSE(folds.empty());
  rounds_.OnFolded(now_, {2, folds.front().chunk, folds.front().assigned, 7}, out_);
  const auto results = [&] {
    return std::ranges::count_if(out_, [](const Action& action) {
      const auto* chunk = std::get_if<Chunk>(&action);
      const auto* result = chunk ? std::get_if<SendResult>(&chunk->action) : nullptr;
      return result != nullptr && result->to == PeerAt(1);
    });
  };
  EXPECT_EQ(results(), 0);
  now_ = now_ + Milliseconds(60);
  rounds_.OnHeard(now_, PeerAt(1));
  rounds_.OnTimer(now_, out_);
  EXPECT_EQ(results(), 1);
}

// A member that leaves gives its rounds up on purpose: they do not count as failed. A later one
// does.
TEST_F(GroupRoundsTest, OnlyTheRoundsOfADepartureAreNotCountedAsFailed) {
  rounds_.Depart(now_, out_);
  EXPECT_EQ(rounds_.tally().kept, 0U);
  opening_.averaging = AveragingId(2);
  rounds_.OpenRound(now_, opening_, seating_, {}, out_);
  rounds_.LeaveOpen(now_, out_);
  EXPECT_EQ(rounds_.tally().kept, 1U);
}

// It has missed an averaging, and has nothing that the others' round could take.
TEST_F(GroupRoundsTest, AMemberThatIsABaseBehindLosesNoRound) {
  rounds_.Depart(now_, out_);
  rounds_.TakeEnded();
  const auto base = [](std::string_view name, uint64_t averaging) {
    return Stake{.weight = 8,
                 .samples = 8,
                 .before = {.averaging = AveragingId(averaging), .samples = 8},
                 .base = Sha256(AsBytes(name))};
  };
  opening_.averaging = AveragingId(3);
  opening_.one_base = opening_.leaves_when_behind = true;
  opening_.stake = base("old", 1);
  rounds_.OpenRound(now_, opening_, seating_, {}, out_);
  const GroupPlan plan = PlanOf(seating_, 0,
                                {.job = "job",
                                 .averaging = opening_.averaging,
                                 .round = 0,
                                 .axis = 0,
                                 .elements = 2048,
                                 .chunk_elements = 1});
  const Ready ahead{base("new", 2), Sha256(AsBytes("table")), MemberListHash(plan.cells),
                    PartsHash(plan.chunks, plan.coverers, true)};
  rounds_.OnFrame(now_, PeerAt(1),
                  {.view = seating_.hash(),
                   .epoch = 0,
                   .averaging = opening_.averaging,
                   .round = 0,
                   .group = plan.group,
                   .frame = EncodeFrame({plan.instance, ahead})},
                  out_);
  const auto ended = rounds_.TakeEnded();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended.front().over.outcome, Outcome::kLeft);
  EXPECT_EQ(rounds_.tally().failed(), 0U);
}

// What the others sent to the one that was dropped is lost: they hear that it begins anew.
TEST_F(GroupRoundsTest, ARoundThatIsOpenedAnewSaysSo) {
  EXPECT_EQ(Readys(), std::vector<bool>{false});
  rounds_.Suspend(now_, out_);
  rounds_.OpenRound(now_, opening_, seating_, {}, out_);
  EXPECT_EQ(Readys(), (std::vector<bool>{false, true}));
}

// Nothing leaves it, because there is nobody to send anything to; yet a STATUS would say that it
// holds this chunk, with this mask. Opened anew it would fix another mask for the same assignment.
TEST_F(GroupRoundsTest, ARoundThatHoldsAResultIsNot) {
  rounds_.OnPeerDown(now_, PeerAt(1), SuspicionCause::kReset, out_);
  const std::vector<FoldChunk> folds = Folds();
  ASSERT_FALSE(folds.empty());
  rounds_.OnFolded(now_, {1, folds.front().chunk, folds.front().assigned, 7}, out_);
  ASSERT_TRUE(rounds_.open());
  EXPECT_FALSE(rounds_.pristine());
  rounds_.Suspend(now_, out_);
  EXPECT_TRUE(rounds_.open());
}

// As a witness it promises in a ballot of a round that others are in by another list of the seats.
// That must not be taken for a sign that it will be in theirs: each ballot would wait for it.
TEST_F(GroupRoundsTest, AMemberThatIsBoundToItsListLeavesARoundOfAnotherOne) {
  const auto open = [&](Ballot ballot) {
    out_.clear();
    const BallotOpen body{.ballot = ballot, .age = {view_.epoch, opening_.averaging, 0}};
    rounds_.OnFrame(now_, PeerAt(1),
                    {.view = seating_.hash(),
                     .epoch = view_.epoch,
                     .averaging = opening_.averaging,
                     .round = 0,
                     .group = 0,
                     .frame = EncodeFrame({InstanceId(), body})},
                    out_);
    return Byes();
  };
  EXPECT_TRUE(open(1).empty()) << "it may take their list";
  out_.clear();
  rounds_.OnPeerDown(now_, PeerAt(1), SuspicionCause::kReset, out_);
  const std::vector<FoldChunk> folds = Folds();
  ASSERT_FALSE(folds.empty());
  rounds_.OnFolded(now_, {1, folds.front().chunk, folds.front().assigned, 7}, out_);
  EXPECT_EQ(open(2), std::vector{ByeReason::kSatOut});
}

// Its results serve the others still: a count has no use for the region that it wrote.
TEST_F(GroupRoundsTest, ARoundStaysOpenForOthersBesideTheCountAfterIt) {
  const auto closed = [&] {
    return std::ranges::count_if(
        out_, [](const Action& action) { return std::holds_alternative<CloseBuffers>(action); });
  };
  rounds_.OnSnapshot(now_, out_);  // it is over for this peer
  ASSERT_FALSE(rounds_.open());
  opening_.averaging = AveragingId(2);
  opening_.counting = true;
  rounds_.OpenRound(now_, opening_, seating_, {}, out_);
  EXPECT_EQ(closed(), 0);
  rounds_.LeaveOpen(now_, out_);
  opening_.averaging = AveragingId(3);
  opening_.counting = false;
  rounds_.OpenRound(now_, opening_, seating_, {}, out_);
  EXPECT_EQ(closed(), 1) << "the round whose region this one writes";
}

// It gave no snapshot for an averaging of the old view and went on to the next: whoever is still in
// that averaging must not wait for it till its deadline.
TEST_F(GroupRoundsTest, WhoWentOnToTheNextViewIsNotWaitedForInTheOldOne) {
  View next = view_;
  next.epoch = view_.epoch + 1;
  next.parent = seating_.hash();
  rounds_.Suspend(now_, out_);
  rounds_.OnView(now_, next, HashOf(next, "job"), ParentEnd::kOrderly, out_);
  EXPECT_EQ(ByesFor(seating_.hash(), Ready{}), std::vector{ByeReason::kSatOut});
  EXPECT_EQ(ByesFor(seating_.hash(), Ask{1, 0, {}}), std::vector{ByeReason::kCannotSpeak});
  EXPECT_TRUE(ByesFor(HashOf(view_, "a view it never was in"), Ready{}).empty());
}

// It heard the others' READY while it waited for its trainer's snapshot, and then got none.
TEST_F(GroupRoundsTest, WhatCameEarlyIsAnsweredWhenTheAveragingIsPassedOver) {
  rounds_.Suspend(now_, out_);
  rounds_.SetMin(AveragingId(1));
  EXPECT_TRUE(ByesFor(seating_.hash(), Ready{}).empty());
  rounds_.AnswerPassed(now_, out_);
  EXPECT_TRUE(Byes().empty()) << "it may be opened yet";
  rounds_.SetMin(AveragingId(2));
  rounds_.AnswerPassed(now_, out_);
  EXPECT_EQ(Byes(), std::vector{ByeReason::kSatOut});
  rounds_.AnswerPassed(now_, out_);
  EXPECT_EQ(Byes().size(), 1U) << "once";
}

TEST_F(GroupRoundsTest, WhatCameEarlyIsAnsweredWhenTheNextViewIsEntered) {
  rounds_.Suspend(now_, out_);
  EXPECT_TRUE(ByesFor(seating_.hash(), Ready{}).empty());
  EXPECT_TRUE(ByesFor(seating_.hash(), Ask{1, 0, {}}).empty());
  View next = view_;
  next.epoch = view_.epoch + 1;
  next.parent = seating_.hash();
  rounds_.OnView(now_, next, HashOf(next, "job"), ParentEnd::kOrderly, out_);
  EXPECT_EQ(Byes(), (std::vector{ByeReason::kSatOut, ByeReason::kCannotSpeak}));
}

// The other one is in the next averaging, and beats, while this peer waits for its trainer.
TEST_F(GroupRoundsTest, BeatsThatComeEarlyDoNotTakeTheReadysPlace) {
  rounds_.LeaveOpen(now_, out_);
  opening_.averaging = AveragingId(2);
  const GroupPlan plan = PlanOf(
      seating_, 0,
      {.job = "job", .averaging = opening_.averaging, .elements = 2048, .chunk_elements = 1});
  const auto hear = [&](const FrameBody& body) {
    rounds_.OnFrame(now_, PeerAt(1),
                    {.view = seating_.hash(),
                     .epoch = view_.epoch,
                     .averaging = opening_.averaging,
                     .round = 0,
                     .group = plan.group,
                     .frame = EncodeFrame({plan.instance, body})},
                    out_);
  };
  hear(Ready{opening_.stake, Sha256(AsBytes("table")), MemberListHash(plan.cells),
             PartsHash(plan.chunks, plan.coverers), false});
  for (size_t beat = 0; beat < GroupRounds::kMaxEarly; ++beat) hear(Beat());
  out_.clear();
  rounds_.OpenRound(now_, opening_, seating_, {}, out_);
  const bool sends = std::ranges::any_of(out_, [](const Action& action) {
    const auto* chunk = std::get_if<Chunk>(&action);
    return chunk != nullptr && std::holds_alternative<SendInput>(chunk->action);
  });
  EXPECT_TRUE(sends) << "the other one is ready";
}

// As many ballots of other groups as a view of some hours has, and of one member that is in none.
TEST_F(GroupRoundsTest, AWitnessPromisesHoweverManyBallotsTheViewHasHad) {
  const auto answer = [&](AveragingId averaging, const InstanceId& instance) {
    out_.clear();
    rounds_.OnFrame(now_, PeerAt(1),
                    {.view = seating_.hash(),
                     .epoch = view_.epoch,
                     .averaging = averaging,
                     .round = 0,
                     .group = 0,
                     .frame = EncodeFrame(
                         {instance, BallotOpen{.ballot = 1, .age = {view_.epoch, averaging, 0}}})},
                    out_);
    for (const Action& action : out_) {
      const auto* send = std::get_if<Send>(&action);
      const auto said = send == nullptr ? std::nullopt : DecodeMessage(send->body);
      if (!said || !std::holds_alternative<message::RoundFrame>(*said)) continue;
      const auto frame = DecodeFrame(std::get<message::RoundFrame>(*said).frame);
      if (frame && std::holds_alternative<Promise>(frame->body)) return true;
    }
    return false;
  };
  const auto name = [](uint64_t number) {
    ByteWriter bytes;
    bytes.U64(number);
    return *InstanceId::From(Sha256(bytes.bytes()).view().first(16));
  };
  rounds_.SetMin(AveragingId(1));
  uint64_t promised = 0;
  for (uint64_t n = 0; n < 4097; ++n) promised += answer(AveragingId(10 + n / 2), name(n)) ? 1 : 0;
  EXPECT_EQ(promised, 4097U);
  EXPECT_TRUE(answer(AveragingId(10 + 4097 / 2 + 1), name(4097)));
}

// A steward that was stopped for long gives a seat from an averaging on that is under way. This
// peer sat in cell 0 when the rounds of the first axis were held, so it holds the mean of the cells
// 0, 2 and 4; in cell 5 it would be taken for one that holds the mean of 1, 3 and 5.
class MovedTest : public GroupRoundsTest {
 protected:
  MovedTest() {
    wide_.grid = Grid{{3, 2}};
    for (int i = 0; i < 5; ++i)
      wide_.members.push_back({.id = PeerAt(static_cast<size_t>(i)),
                               .cell = static_cast<CellIndex>(i),
                               .joined_unix_ms = i});
    wide_.witnesses = {PeerAt(0)};
    seating_ = Seating(wide_, HashOf(wide_, "job"));
    moved_ = seating_;
    moved_.Add(Vacancy{PeerAt(0), 0, AveragingId(1)});
    moved_.Add(Seat{.member = {.id = PeerAt(0), .cell = 5},
                    .steward = PeerAt(1),
                    .steward_joined_ms = 1,
                    .sitting = 1,
                    .first_averaging = AveragingId(1)});
    rounds_.OnView(now_, wide_, seating_.hash(), ParentEnd::kBrokeUp, out_);
    rounds_.TakeEnded();
  }
  void OpenRound(uint32_t round, const std::set<PeerId>& down = {}) {
    opening_.round = round;
    opening_.axis = round;
    rounds_.OpenRound(now_, opening_, seating_, down, out_);
  }

  // The group of `cell`, by the seats of `seating`.
  GroupPlan PlanOfSecondRound(const Seating& seating, CellIndex cell) const {
    return PlanOf(seating, cell,
                  {.job = "job",
                   .averaging = opening_.averaging,
                   .round = 1,
                   .axis = 1,
                   .elements = 2048,
                   .chunk_elements = 1});
  }

  View wide_;
  Seating moved_;
};

TEST_F(MovedTest, InTheFirstRoundItTakesTheOtherCell) {
  OpenRound(0);
  EXPECT_EQ(rounds_.CellIn(opening_.averaging), 0U);
  rounds_.Replan(now_, moved_, {}, out_);
  EXPECT_TRUE(rounds_.open());
  EXPECT_EQ(rounds_.CellIn(opening_.averaging), 5U);
  EXPECT_EQ(rounds_.CellIn(opening_.averaging + 1), std::nullopt);
}

TEST_F(MovedTest, InALaterRoundItSitsTheAveragingOut) {
  OpenRound(1);
  rounds_.Replan(now_, moved_, {}, out_);
  EXPECT_FALSE(rounds_.open());
  const auto ended = rounds_.TakeEnded();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended.front().over.outcome, Outcome::kKept);
  EXPECT_EQ(rounds_.CellIn(opening_.averaging), 0U);
}

// Its own class is asked for its neighbour in cell 1, who is lost; but a newcomer's state lies
// where the class's mean lay.
TEST_F(MovedTest, ItSpeaksForNobodyOnceAnotherStateIsFetched) {
  opening_.from = Region::kInboxA;
  opening_.to = Region::kInboxB;
  OpenRound(1);
  rounds_.Depart(now_, out_);
  // The row of 2 and 3: cell 2 is of this peer's class.
  const GroupPlan plan = PlanOfSecondRound(seating_, 3);
  const auto ask = [&] {
    out_.clear();
    rounds_.OnFrame(now_, PeerAt(3),
                    {.view = seating_.hash(),
                     .epoch = 0,
                     .averaging = opening_.averaging,
                     .round = 1,
                     .group = plan.group,
                     .frame = EncodeFrame({plan.instance, Ask{0, 0, {ChunkIndex(0)}}})},
                    out_);
    return std::any_of(out_.begin(), out_.end(), [](const Action& action) {
      return std::holds_alternative<SpeakChunk>(action);
    });
  };
  EXPECT_TRUE(ask());
  rounds_.OnOverwritten(now_, Region::kInboxB, out_);
  EXPECT_TRUE(ask()) << "what it speaks from is as it was";
  rounds_.OnOverwritten(now_, Region::kInboxA, out_);
  EXPECT_FALSE(ask());
}

// In the row of 2 and 3 the member of cell 3 is lost. By the new seats this peer is of its class.
TEST_F(MovedTest, ItSpeaksForNobodyOfAnotherClass) {
  OpenRound(1);
  const GroupPlan plan = PlanOfSecondRound(moved_, 2);
  ASSERT_TRUE(plan.cells[1].speakers.contains(PeerAt(0)));
  rounds_.OnListInUse(now_,
                      {.view = seating_.hash(),
                       .averaging = opening_.averaging,
                       .round = 1,
                       .group = plan.group,
                       .seats = {moved_.seats().begin(), moved_.seats().end()},
                       .vacancies = {moved_.vacancies().begin(), moved_.vacancies().end()}},
                      {}, out_);
  out_.clear();
  rounds_.OnFrame(now_, PeerAt(2),
                  {.view = seating_.hash(),
                   .epoch = 0,
                   .averaging = opening_.averaging,
                   .round = 1,
                   .group = plan.group,
                   .frame = EncodeFrame({plan.instance, Ask{1, 0, {}}})},
                  out_);
  ASSERT_EQ(out_.size(), 1U);
  const auto answer = DecodeMessage(std::get<Send>(out_.front()).body);
  const auto frame = DecodeFrame(std::get<message::RoundFrame>(*answer).frame);
  ASSERT_TRUE(std::holds_alternative<Bye>(frame->body));
  EXPECT_EQ(std::get<Bye>(frame->body).reason, ByeReason::kCannotSpeak);
}

// The member of cell 1 leaves, and the one of cell 3 could speak for it.
TEST_F(MovedTest, NobodyWaitsForAStandInThatWasGoneBeforeItWasNeeded) {
  for (const bool gone : {false, true}) {
    OpenRound(1, gone ? std::set<PeerId>{PeerAt(3)} : std::set<PeerId>());
    out_.clear();
    rounds_.OnPeerDown(now_, PeerAt(1), SuspicionCause::kBye, out_);
    EXPECT_EQ(Folds().empty(), !gone) << "it goes on at once where nobody can speak";
    rounds_.Depart(now_, out_);
    ++opening_.averaging;
  }
}

}  // namespace
}  // namespace crowdsurf::worker
