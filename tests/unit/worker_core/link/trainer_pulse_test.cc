// When a trainer counts as silent or hung: the limits of trainer_pulse.h, second by second.
#include "worker/core/link/trainer_pulse.h"

#include <gtest/gtest.h>

namespace crowdsurf::worker {
namespace {

using State = TrainerPulse::State;

Time At(double seconds) { return Time::FromNanoseconds(1) + Seconds(seconds); }

TEST(TrainerPulseTest, WithoutATrainerThereIsNothingToSay) {
  TrainerPulse pulse(Seconds(60));
  EXPECT_EQ(pulse.Look(At(1000), 5), State::kNone);
  pulse.OnRegistered(At(1000));
  pulse.OnGone();
  EXPECT_EQ(pulse.Look(At(2000), 5), State::kNone);
}

TEST(TrainerPulseTest, SilentAfterTenSecondsHungAfterItsPatience) {
  TrainerPulse pulse(Seconds(60));
  pulse.OnRegistered(At(0));
  EXPECT_EQ(pulse.Look(At(1), 1), State::kStepping);
  EXPECT_EQ(pulse.Look(At(10.9), 1), State::kStepping);
  EXPECT_EQ(pulse.Look(At(11), 1), State::kSilent);
  EXPECT_EQ(pulse.Look(At(60.9), 1), State::kSilent);
  EXPECT_EQ(pulse.Look(At(61), 1), State::kHung);
  EXPECT_EQ(pulse.since_step(At(61)), Seconds(60));
  EXPECT_EQ(pulse.Look(At(62), 2), State::kStepping) << "it was only slow";
}

TEST(TrainerPulseTest, AShortPatienceShortensBoth) {
  TrainerPulse pulse(Seconds(6));
  pulse.OnRegistered(At(0));
  EXPECT_EQ(pulse.Look(At(1.9), 0), State::kStepping);
  EXPECT_EQ(pulse.Look(At(2), 0), State::kSilent) << "also before the first step";
  EXPECT_EQ(pulse.Look(At(6), 0), State::kHung);
}

TEST(TrainerPulseTest, APauseThatEndedWellMakesItPatient) {
  TrainerPulse pulse(Seconds(60));
  pulse.OnRegistered(At(0));
  pulse.Look(At(30), 1);  // an evaluation of 30 s
  EXPECT_EQ(pulse.Look(At(119), 1), State::kStepping);
  EXPECT_EQ(pulse.Look(At(120), 1), State::kHung) << "three times as long";
}

TEST(TrainerPulseTest, OneThatSaidThatItIsBusyIsNotHungBeforeThatIsOver) {
  TrainerPulse pulse(Seconds(60));
  pulse.OnRegistered(At(0));
  EXPECT_EQ(pulse.Look(At(1), 1), State::kStepping);
  pulse.OnBusy(At(301));
  EXPECT_EQ(pulse.Look(At(20), 1), State::kSilent) << "rounds do not wait for it";
  EXPECT_EQ(pulse.Look(At(300), 1), State::kSilent);
  EXPECT_EQ(pulse.Look(At(301), 1), State::kHung);
}

TEST(TrainerPulseTest, TheNextStepAndALaterWordEndThat) {
  TrainerPulse pulse(Seconds(60));
  pulse.OnRegistered(At(0));
  pulse.OnBusy(At(1000));
  EXPECT_EQ(pulse.Look(At(1), 1), State::kStepping);
  EXPECT_EQ(pulse.Look(At(61), 1), State::kHung);
  pulse.OnBusy(At(1000));
  pulse.OnBusy(At(62));
  EXPECT_EQ(pulse.Look(At(63), 2), State::kStepping);
  pulse.OnBusy(At(1000));
  pulse.OnRegistered(At(64));
  EXPECT_EQ(pulse.Look(At(124), 0), State::kHung) << "a word of the trainer before";
}

TEST(TrainerPulseTest, TimeInWhichItWaitsForUsDoesNotCount) {
  TrainerPulse pulse(Seconds(60));
  pulse.OnRegistered(At(0));
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(pulse.Look(At(5.0 * i), 0, TrainerPulse::Duty::kExcused), State::kStepping);
  EXPECT_EQ(pulse.Look(At(504), 0), State::kStepping);
  EXPECT_EQ(pulse.Look(At(506), 0), State::kSilent);
}

TEST(TrainerPulseTest, WithoutAPatienceItIsNeverCalledHung) {
  TrainerPulse pulse(Duration::Infinite());
  pulse.OnRegistered(At(0));
  EXPECT_EQ(pulse.Look(At(1e6), 0), State::kSilent);
}

TEST(TrainerPulseTest, ANewTrainerIsAnother) {
  TrainerPulse pulse(Seconds(60));
  pulse.OnRegistered(At(0));
  pulse.Look(At(100), 0);
  pulse.OnRegistered(At(100));
  EXPECT_EQ(pulse.state(), State::kStepping);
  EXPECT_EQ(pulse.Look(At(105), 0), State::kStepping);
}

}  // namespace
}  // namespace crowdsurf::worker
