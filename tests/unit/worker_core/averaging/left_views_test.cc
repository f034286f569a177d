// What a peer says to members that are in a round of a view that it has left.
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "base/metrics.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/averaging/group_rounds.h"
#include "worker/core/port/config.h"
#include "worker/core/port/messages.h"
#include "worker/core/port/peer_metrics.h"
#include "worker/core/round/round_codec.h"

namespace crowdsurf::worker {
namespace {

// This peer and PeerAt(1) are the members of a view.
class LeftViewsTest : public testing::Test {
 protected:
  LeftViewsTest() {
    config_.job = "job";
    config_.id = PeerAt(0);
    view_.grid = Grid{{2}};
    for (size_t i = 0; i < 2; ++i)
      view_.members.push_back({.id = PeerAt(i), .cell = static_cast<CellIndex>(i)});
    view_.witnesses = {PeerAt(0)};
    Enter(view_);
  }

  void Enter(const View& view) {
    rounds_.OnView(now_, view, HashOf(view, "job"), ParentEnd::kOrderly, out_);
  }
  message::RoundFrame Asked(uint64_t averaging, FrameBody body) const {
    return {.view = HashOf(view_, "job"),
            .epoch = view_.epoch,
            .averaging = AveragingId(averaging),
            .round = 0,
            .group = 0,
            .frame = EncodeFrame({InstanceId(), std::move(body)})};
  }
  // The reason of the BYE that PeerAt(1) is answered with; nullopt: it gets none.
  std::optional<ByeReason> Bye(uint64_t averaging, FrameBody body) {
    out_.clear();
    const bool declines = rounds_.Declines(PeerAt(1), Asked(averaging, std::move(body)), out_);
    if (out_.empty()) return std::nullopt;
    EXPECT_TRUE(declines);
    const auto answer = DecodeMessage(std::get<Send>(out_.front()).body);
    const auto frame = DecodeFrame(std::get<message::RoundFrame>(*answer).frame);
    return std::get<worker::Bye>(frame->body).reason;
  }

  PeerConfig config_;
  MetricRegistry registry_;
  PeerMetrics metrics_{registry_};
  GroupRounds rounds_{config_, metrics_, Logger(nullptr, "test")};
  Time now_ = Time() + Seconds(1);
  View view_;
  Actions out_;
};

// It lost its seat by mistake and sits again in the same view. A member that is in a round of the
// parent yet needs it as a witness.
TEST_F(LeftViewsTest, WhoSitsAgainInOneViewStillAnswersForItsParent) {
  View next = view_;
  next.epoch = view_.epoch + 1;
  next.parent = HashOf(view_, "job");
  Enter(next);
  EXPECT_TRUE(rounds_.Serves(Asked(1, Ready{})));
  Enter(next);
  EXPECT_TRUE(rounds_.Serves(Asked(1, Ready{})));
}

// The others left that view while one was in a step of its training, and it opened a round there
// when the step was over. It would wait for them for as long as a round may pause.
TEST_F(LeftViewsTest, WhoAsksInAViewThatWasLeftHearsThatItsAveragingIsOver) {
  rounds_.SetMin(AveragingId(3));
  EXPECT_EQ(Bye(2, Ready{}), ByeReason::kSatOut);
  EXPECT_EQ(Bye(2, Fetch{}), ByeReason::kSatOut);
  EXPECT_EQ(Bye(2, Ask{1, 0, {}}), ByeReason::kCannotSpeak);
  EXPECT_EQ(Bye(2, Have{}), std::nullopt);
  EXPECT_EQ(Bye(3, Ready{}), std::nullopt) << "it may be opened yet";
}

}  // namespace
}  // namespace crowdsurf::worker
