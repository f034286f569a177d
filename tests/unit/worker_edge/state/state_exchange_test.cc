// Joiners whose requests wait for the trainer's opaque state, and who of them takes a donor's
// place.
#include "worker/edge/state/state_exchange.h"

#include <gtest/gtest.h>

#include <map>

#include "base/digest.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "tests/unit/worker_edge/state/scratch_folder.h"
#include "worker/edge/link/held_state.h"

namespace crowdsurf::worker {
namespace {

constexpr uint8_t kPlaces = 4;  // of a donor

class StateExchangeTest : public testing::Test {
 protected:
  StateExchangeTest() {
    exchange_.Offer(0,
                    StateExchange::Describe({.average = average_}, AveragingId(7), 100, Digest()));
  }
  void Ask(uint8_t joiner) {
    exchange_.OnFrame(now_, Id(joiner), EncodeStateMessage(ManifestRequest{}));
  }
  // What the joiners were told when the trainer had its time to answer: refusals.
  std::map<PeerId, StateRefusal> Answers() {
    EXPECT_TRUE(answers_.empty()) << "nobody waited";
    now_ = exchange_.NextDeadline();
    exchange_.OnTimer(now_);
    return answers_;
  }

  Time now_ = Time::FromNanoseconds(1'000'000'000);
  std::vector<float> average_ = std::vector<float>(100, 1.0f);
  std::map<PeerId, StateRefusal> answers_;
  std::vector<Bytes> chunks_;  // payloads, in the order in which they were sent
  MetricRegistry registry_;
  AgentMetrics metrics_{registry_};
  StateExchange exchange_{
      {.inbox = [this](int) { return std::span<float>(average_); },
       .velocity = [] { return std::span<const float>(); },
       .send =
           [this](const PeerId& to, const SharedBytes& body) {
             const auto decoded = DecodeStateMessage(*body);
             if (const auto* manifest = std::get_if<ManifestReply>(&decoded->message))
               answers_[to] = manifest->refusal;
             else
               chunks_.emplace_back(decoded->payload.begin(), decoded->payload.end());
             return true;
           },
       .request_opaque = [] { return true; },
       .make_room = [](uint64_t) { return absl::ResourceExhaustedError("none"); },
       .hash = [](const auto&, uint64_t) { return false; }},
      metrics_,
      registry_,
      Logger()};
};

TEST_F(StateExchangeTest, JoinersWaitForTheTrainerAndTheFirstOnesGetThePlaces) {
  for (uint8_t joiner = 1; joiner <= kPlaces + 1; ++joiner) Ask(joiner);
  const auto answers = Answers();
  ASSERT_EQ(answers.size(), kPlaces + 1u);
  for (uint8_t joiner = 1; joiner <= kPlaces; ++joiner)
    EXPECT_EQ(answers.at(Id(joiner)), StateRefusal::kNone);
  EXPECT_EQ(answers.at(Id(kPlaces + 1)), StateRefusal::kBusy);
}

TEST_F(StateExchangeTest, WhoDiesOrIsDoneWhileItWaitsTakesNoPlace) {
  for (uint8_t joiner = 1; joiner <= kPlaces + 1; ++joiner) Ask(joiner);
  exchange_.OnPeerDown(now_, Id(1));
  exchange_.OnFrame(now_, Id(2), EncodeStateMessage(FetchOver{}));
  const auto answers = Answers();
  EXPECT_EQ(answers.size(), kPlaces - 1u);
  EXPECT_EQ(answers.at(Id(kPlaces + 1)), StateRefusal::kNone);
}

// A fetch that moves from one average to the next asks each time.
TEST_F(StateExchangeTest, ATrainerThatGivesNoStateIsWaitedForOnce) {
  Ask(1);
  EXPECT_EQ(Answers().size(), 1U);
  Ask(2);
  ASSERT_EQ(answers_.size(), 2U) << "at once";
  EXPECT_EQ(answers_.at(Id(2)), StateRefusal::kNone);
}

TEST_F(StateExchangeTest, TheTrainersStateGoesOutWholeChunkByChunk) {
  const ScratchFolder memory;
  const auto folder = LinkFolder::Open(memory.path());
  ASSERT_TRUE(folder.ok()) << folder.status();
  Bytes bytes(2 * kStateChunkBytes + 5);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 31 >> 8);
  auto state = HeldState::Make(*folder, bytes.size());
  ASSERT_TRUE(state.ok()) << state.status();
  // A trainer may upload it byte by byte.
  ASSERT_TRUE((*state)->Write(0, ByteView(bytes).first(1)).ok());
  ASSERT_TRUE((*state)->Write(1, ByteView(bytes).subspan(1)).ok());
  const Digest hash = Sha256({bytes.data(), bytes.size()});
  exchange_.OnOpaque(now_, {.state = *std::move(state), .hash = hash});
  for (uint32_t chunk = 0; chunk < 3; ++chunk)
    exchange_.OnFrame(now_, Id(1), EncodeStateMessage(ChunkRequest{hash, true, chunk}));
  Bytes whole;
  for (const Bytes& chunk : chunks_) whole.insert(whole.end(), chunk.begin(), chunk.end());
  EXPECT_EQ(chunks_.size(), 3U);
  EXPECT_EQ(whole, bytes);
}

}  // namespace
}  // namespace crowdsurf::worker
