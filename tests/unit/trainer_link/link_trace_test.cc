// Each rule of the checker, broken once by hand: what it does not see here it would not see in a
// client's trace either.
#include "tests/unit/trainer_link/trace/link_trace.h"

#include <gmock/gmock.h>

#include "tests/unit/worker_core/shard/granted.h"

namespace crowdsurf::worker {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kSize = 4;

// What a marching trainer has after so many steps.
std::vector<float> March(std::vector<float> from, uint64_t steps) {
  for (size_t i = 0; i < from.size(); ++i) from[i] += static_cast<float>(steps * (i + 1));
  return from;
}

struct TraceTest : testing::Test {
  void Register(bool fresh = true, bool gives_first = false) {
    link::TrainerRegistered event;
    event.fresh = fresh;
    event.gives_first = gives_first;
    trace.Saw(event, {});
  }
  void Begin() {
    Register();
    trace.LetStart();
  }
  void Publish(uint64_t number, uint64_t steps, const std::vector<float>& values) {
    trace.Asked(number);
    trace.Saw(link::Published{.number = number, .steps = steps, .samples = kTracedUnit * steps},
              values);
  }
  void Apply(uint64_t number) { trace.Saw(link::Applied{number}, {}); }
  void Adopt(uint64_t sequence) { trace.Saw(link::Adopted{sequence}, {}); }
  void ExpectBroken(const char* what) { EXPECT_THAT(trace.broken(), ElementsAre(HasSubstr(what))); }

  const std::vector<float> first{5, 6, 7, 8};
  const std::vector<float> change{1, -1, 2, -2};
  std::vector<float> changed{6, 5, 9, 6};
  LinkTrace trace{LinkTrace::Motion::kMarches, first};
};

TEST_F(TraceTest, ATrainerThatKeepsToThePageBreaksNothing) {
  Begin();
  Publish(7, 3, March(first, 3));
  trace.Delivered(7, change);
  Apply(7);
  Publish(8, 5, March(changed, 5));
  trace.Released();
  trace.Offered(1, {9, 9, 9, 9});
  Adopt(1);
  Publish(9, 9, March({9, 9, 9, 9}, 2));
  trace.AskedState();
  trace.Saw(link::OpaqueGiven{}, {});
  trace.Restarted();
  trace.Saw(link::TrainerGone{}, {});
  Register(false);
  trace.Stopped();
  trace.Saw(link::StopAcknowledged{}, {});
  trace.Saw(link::TrainerGone{}, {});
  EXPECT_THAT(trace.broken(), IsEmpty());
  EXPECT_EQ(trace.snapshots(), 3u);
}

TEST_F(TraceTest, AResultIsAddedOnceAndWhole) {
  for (const auto& after : {March(first, 5), March({7, 4, 11, 4}, 5), March({6, 5, 9, 8}, 5)}) {
    trace = LinkTrace(LinkTrace::Motion::kMarches, first);
    Begin();
    Publish(1, 3, March(first, 3));
    trace.Delivered(1, change);
    Apply(1);
    Publish(2, 5, after);
    ExpectBroken("snapshot 2 after 5 steps is none that it can have");
    Publish(3, 6, March(after, 1));
    EXPECT_EQ(trace.broken().size(), 1u) << "it is told once";
  }
}

TEST_F(TraceTest, AStepIsInASnapshotOnce) {
  Begin();
  Publish(1, 3, March(first, 4));
  ExpectBroken("none that it can have");
}

TEST_F(TraceTest, ASnapshotIsNotTorn) {
  Begin();
  std::vector<float> torn = March(first, 3);
  torn[3] = March(first, 2)[3];
  Publish(1, 3, torn);
  ExpectBroken("none that it can have");
}

TEST_F(TraceTest, TheResultOfASnapshotBeforeAnAdoptionIsNotAdded) {
  Begin();
  Publish(1, 3, March(first, 3));
  trace.Offered(1, {9, 9, 9, 9});
  Adopt(1);
  trace.Delivered(1, change);
  Apply(1);
  Publish(2, 5, March({10, 8, 11, 7}, 1));
  ExpectBroken("none that it can have");
}

// The snapshot of one boundary is told before its adoption.
TEST_F(TraceTest, AnAdoptionMayBeToldAfterTheSnapshotThatHasIt) {
  Begin();
  trace.Offered(1, {9, 9, 9, 9});
  Publish(1, 5, March({9, 9, 9, 9}, 1));
  Adopt(1);
  Publish(2, 6, March({9, 9, 9, 9}, 2));
  EXPECT_THAT(trace.broken(), IsEmpty());
  Publish(3, 9, March({9, 9, 9, 9}, 9));
  ExpectBroken("none that it can have");
}

// What was delivered and not applied when the agent ended may be in the parameters, but not later.
TEST_F(TraceTest, AfterARestartOneOfTwoStatesIsRight) {
  for (const bool added : {true, false}) {
    trace = LinkTrace(LinkTrace::Motion::kMarches, first);
    Begin();
    Publish(1, 3, March(first, 3));
    trace.Delivered(1, change);
    trace.Restarted();
    Register(false);
    Publish(2, 5, March(added ? changed : first, 5));
    EXPECT_THAT(trace.broken(), IsEmpty());
    Publish(3, 6, March(added ? first : changed, 6));
    ExpectBroken("none that it can have");
  }
}

TEST_F(TraceTest, NothingIsDoneUnasked) {
  Begin();
  trace.Saw(link::Published{.number = 4}, first);
  ExpectBroken("publishes 4 unasked");
}

TEST_F(TraceTest, OnlyWhatWasDeliveredIsAppliedAndOnce) {
  Begin();
  Publish(1, 3, March(first, 3));
  Apply(1);
  ExpectBroken("applies 1");
  trace.Delivered(1, change);
  Apply(1);
  Apply(1);
  EXPECT_EQ(trace.broken().size(), 2u);
}

TEST_F(TraceTest, OnlyWhatWasOfferedIsAdopted) {
  Begin();
  Adopt(3);
  ExpectBroken("adopts 3");
}

TEST_F(TraceTest, AStateAndAStopAreAskedFor) {
  Begin();
  trace.Saw(link::OpaqueGiven{}, {});
  ExpectBroken("unasked");
  trace.Saw(link::StopAcknowledged{}, {});
  EXPECT_EQ(trace.broken().size(), 2u);
  Publish(1, 1, March(first, 1));
  EXPECT_THAT(trace.broken().back(), HasSubstr("after it has acknowledged the stop"));
}

TEST_F(TraceTest, HeldItGivesItsFirstParametersOnlyWhereItSaidSo) {
  Register(true, true);
  Publish(1, 0, first);
  EXPECT_THAT(trace.broken(), IsEmpty());
  trace = LinkTrace(LinkTrace::Motion::kMarches, first);
  Register();
  Publish(1, 0, first);
  ExpectBroken("while it is held");
}

TEST_F(TraceTest, CountsGoForward) {
  Begin();
  trace.Asked(1);
  trace.Saw(link::Published{.number = 1, .steps = 3, .samples = 25}, March(first, 3));
  ExpectBroken("counts 25 samples in 3 steps");
  Publish(2, 2, March(first, 2));
  EXPECT_THAT(trace.broken()[1], HasSubstr("counts steps backwards"));
}

TEST_F(TraceTest, RegistrationsSayWhetherItHasTrained) {
  trace.Saw(link::Applied{1}, {});
  EXPECT_THAT(trace.broken().at(0), HasSubstr("before it registers"));
  trace = LinkTrace(LinkTrace::Motion::kMarches, first);
  Register(false);
  ExpectBroken("never let start");
  trace = LinkTrace(LinkTrace::Motion::kMarches, first);
  Begin();
  Register();
  ExpectBroken("registers twice");
  trace = LinkTrace(LinkTrace::Motion::kMarches, first);
  Begin();
  Publish(1, 3, March(first, 3));
  trace.Restarted();
  Register();
  ExpectBroken("says that it is fresh");
}

struct LeaseTraceTest : testing::Test {
  void SetUp() override {
    trace.Saw(link::TrainerRegistered{}, {});
    trace.LetStart();
    trace.Granted(Granted(1, 10, {{0, 2, 2}, {0, 0, 1}}));
  }
  void Publish(StreamPosition at, const std::vector<float>& values) {
    trace.Asked(++number);
    trace.Saw(link::Published{.number = number, .steps = number, .leases = at}, values);
  }
  uint64_t number = 0;
  LinkTrace trace{LinkTrace::Motion::kDrawsLeases, std::vector<float>(kSize), 1};
};

TEST_F(LeaseTraceTest, SamplesAreThoseOfTheLeasesUpToThePosition) {
  Publish({1, 11}, {0, 0, 1, 0});
  Publish({1, 13}, {1, 0, 1, 1});
  trace.Granted(Granted(2, 0, {{1, 1, 1}}));
  Publish({2, 1}, {1, 1, 1, 1});
  EXPECT_THAT(trace.broken(), IsEmpty());
}

TEST_F(LeaseTraceTest, ASampleIsNeitherLostNorTrainedTwice) {
  Publish({1, 12}, {0, 0, 1, 0});
  Publish({1, 13}, {1, 0, 2, 0});
  EXPECT_EQ(trace.broken().size(), 2u);
}

// It may have trained on in the old stream until it saw the new one, but only what it had.
TEST_F(LeaseTraceTest, AnotherStreamDropsTheLeasesOfTheOneBefore) {
  Publish({1, 11}, {0, 0, 1, 0});
  trace.Granted(Granted(2, 0, {{1, 1, 2}}));
  Publish({2, 1}, {0, 1, 1, 1});
  EXPECT_THAT(trace.broken(), IsEmpty());
  Publish({2, 2}, {1, 1, 2, 1});
  EXPECT_EQ(trace.broken().size(), 1u);
}

TEST_F(LeaseTraceTest, PositionsStayWithinWhatWasGranted) {
  Publish({3, 1}, {0, 0, 0, 0});
  EXPECT_THAT(trace.broken(), Contains(HasSubstr("stream 3, not granted")));
  Publish({1, 14}, {1, 0, 1, 1});
  EXPECT_THAT(trace.broken(), Contains(HasSubstr("beyond its leases")));
  Publish({1, 12}, {1, 0, 1, 1});
  EXPECT_THAT(trace.broken(), Contains(HasSubstr("goes back")));
}

// It may have seen none of the streams between two snapshots, or trained some of each.
TEST_F(LeaseTraceTest, SeveralStreamsMayHaveComeBetweenTwoSnapshots) {
  trace.Granted(Granted(2, 0, {{0, 1, 1}}));
  trace.Granted(Granted(3, 4, {{0, 3, 1}}));
  Publish({3, 5}, {0, 1, 1, 1});
  Publish({3, 5}, {0, 1, 1, 1});
  trace.Granted(Granted(4, 0, {{0, 3, 1}}));
  Publish({0, 0}, {0, 1, 1, 2});
  EXPECT_THAT(trace.broken(), IsEmpty());
  Publish({4, 1}, {0, 1, 1, 2});
  EXPECT_EQ(trace.broken().size(), 1u) << "a sample less than it says";
}

TEST_F(LeaseTraceTest, AnAdoptionEndsTheStream) {
  Publish({1, 11}, {0, 0, 1, 0});
  trace.Offered(1, {5, 5, 5, 5});
  trace.Saw(link::Adopted{1}, {});
  Publish({1, 12}, {5, 5, 5, 6});
  EXPECT_THAT(trace.broken().at(0), HasSubstr("an adoption has ended"));
}

}  // namespace
}  // namespace crowdsurf::worker
