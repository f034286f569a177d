// The frames of PowerGossip, and the factors of both ends of an edge beside them.
#include "worker/core/power/power_edges.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/digest.h"
#include "worker/core/power/power_frames.h"
#include "worker/core/power/power_layout.h"
#include "worker/core/vector/tensor_view.h"
#include "worker/core/vector/wire_format.h"

namespace crowdsurf::worker {
namespace {

PeerId IdOf(int i) { return *PeerId::From(Sha256(AsBytes("peer" + std::to_string(i))).view()); }

// A matrix of 12 by 9 and three values more.
constexpr uint64_t kElements = 12 * 9 + 3;
std::shared_ptr<const PowerFrames> Frames(uint64_t dense_every = 0, uint32_t rank = 1) {
  const TensorViews tensors{{0, {12, 9}}};
  return std::make_shared<const PowerFrames>(
      std::make_shared<const PowerLayout>(tensors, kElements, rank), dense_every);
}

TEST(PowerFramesTest, StepsHaveTheLengthOfTheirHalfIterationAndNeighboursInTimeNeverOverlap) {
  for (const uint64_t dense : {0U, 1U, 2U, 3U, 4U, 7U}) {
    const auto frames = Frames(dense);
    uint64_t iterations = 0;
    for (uint64_t step = 1; step <= 50; ++step) {
      const bool is_dense = dense > 0 && step % dense == 0;
      if (!is_dense) ++iterations;
      const uint64_t body = is_dense ? kElements : 3 + (iterations % 2 == 1 ? 12 : 9);
      EXPECT_EQ(frames->SizeOf(step), PowerFrames::kHead + body) << dense << " " << step;
      EXPECT_EQ(frames->IterationsBy(step), iterations);
      // What must lie there at once: both ends' frames of this step and of the next.
      const std::vector<Extent> held{frames->Arriving(step), frames->Arriving(step + 1),
                                     frames->Own(step), frames->Own(step + 1)};
      for (size_t a = 0; a < held.size(); ++a) {
        EXPECT_LE(held[a].begin + held[a].count, frames->RegionSize());
        for (size_t b = 0; b < a; ++b)
          EXPECT_TRUE(held[a].begin + held[a].count <= held[b].begin ||
                      held[b].begin + held[b].count <= held[a].begin);
      }
    }
  }
}

// Two workers and the edge between them; frames arrive at once.
class Ends {
 public:
  explicit Ends(std::shared_ptr<const PowerFrames> frames, WireFormat wire = WireFormat::kFloat32)
      : frames_(std::move(frames)) {
    Rng rng(5);
    for (int i = 0; i < 2; ++i) {
      vector[i].resize(kElements);
      for (double& v : vector[i]) v = rng.Normal();
      region_[i].resize(frames_->RegionSize());
    }
    for (int i = 0; i < 2; ++i) Begin(i, wire);
  }

  void Begin(int i, WireFormat wire = WireFormat::kFloat32) {
    Run(i, UsePowerEdges{.self = IdOf(i),
                         .ends = {{IdOf(1 - i), Region::kExtra0, 0.5}},
                         .frames = frames_,
                         .wire = wire});
  }
  void Project(int i, uint64_t step) { Run(i, ProjectPower{step, Region::kInboxA}); }
  void Carry(int to, uint64_t step) {
    const Extent own = frames_->Own(step), arriving = frames_->Arriving(step);
    for (uint64_t v = 0; v < own.count; ++v)
      region_[to][arriving.begin + v] = region_[1 - to][own.begin + v];
  }
  void Apply(int i, uint64_t step) { Run(i, ApplyPower{step, Region::kInboxA, {IdOf(1 - i)}}); }
  void Step(uint64_t step) {
    for (int i = 0; i < 2; ++i) Project(i, step);
    for (int i = 0; i < 2; ++i) Carry(i, step);
    for (int i = 0; i < 2; ++i) Apply(i, step);
  }
  double Distance() const {
    double sum = 0;
    for (size_t v = 0; v < kElements; ++v) sum += std::pow(vector[0][v] - vector[1][v], 2);
    return std::sqrt(sum);
  }
  double Sum() const {
    double sum = 0;
    for (size_t v = 0; v < kElements; ++v) sum += vector[0][v] + vector[1][v];
    return sum;
  }
  double& InFrame(int at, uint64_t step, uint64_t value) {
    return region_[at][frames_->Arriving(step).begin + value];
  }
  uint64_t reseeds(int i) const { return edges_[i].reseeds(); }

  std::vector<double> vector[2];

 private:
  void Run(int i, const PowerAction& action) {
    edges_[i].Run(action, [&](Region region, const Extent& e) {
      auto& values = region == Region::kExtra0 ? region_[i] : vector[i];
      return std::span(values).subspan(e.begin, e.count);
    });
  }
  std::shared_ptr<const PowerFrames> frames_;
  std::vector<double> region_[2];
  PowerEdges<double> edges_[2];
};

TEST(PowerEdgesTest, TwoEndsAgreeAndKeepTheirSum) {
  Ends ends(Frames());
  const double first = ends.Distance(), sum = ends.Sum();
  for (uint64_t step = 1; step <= 200; ++step) ends.Step(step);
  EXPECT_LT(ends.Distance(), 1e-6 * first);
  EXPECT_NEAR(ends.Sum(), sum, 1e-12);
  EXPECT_EQ(ends.reseeds(0) + ends.reseeds(1), 0u);
}

// Values that travel rounded are used rounded at both ends.
TEST(PowerEdgesTest, AShortWireKeepsTheSumToo) {
  for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
    Ends ends(Frames(), wire);
    const double first = ends.Distance(), sum = ends.Sum();
    for (uint64_t step = 1; step <= 100; ++step) ends.Step(step);
    EXPECT_LT(ends.Distance(), 0.05 * first);
    EXPECT_NEAR(ends.Sum(), sum, 1e-12);
    EXPECT_EQ(ends.reseeds(0) + ends.reseeds(1), 0u);
  }
}

TEST(PowerEdgesTest, ADenseStepAveragesWholeVectors) {
  Ends ends(Frames(3));
  for (uint64_t step = 1; step <= 3; ++step) ends.Step(step);
  EXPECT_LT(ends.Distance(), 1e-14);
}

// One end alone has ended a step when a view begins: for one step nobody applies anything, and then
// both go on with the same new factors.
TEST(PowerEdgesTest, FactorsThatCameApartAreDrawnAnewAtBothEnds) {
  Ends ends(Frames());
  for (uint64_t step = 1; step <= 4; ++step) ends.Step(step);
  for (int i = 0; i < 2; ++i) ends.Project(i, 5);
  ends.Carry(0, 5);
  ends.Apply(0, 5);
  for (int i = 0; i < 2; ++i) ends.Begin(i);
  const auto before = ends.vector[0];
  ends.Step(1);
  EXPECT_EQ(ends.vector[0], before);
  EXPECT_EQ(ends.reseeds(0), 1u);
  EXPECT_EQ(ends.reseeds(1), 1u);
  const double sum = ends.Sum(), distance = ends.Distance();
  for (uint64_t step = 2; step <= 100; ++step) ends.Step(step);
  EXPECT_EQ(ends.reseeds(0), 1u);
  EXPECT_LT(ends.Distance(), 1e-3 * distance);
  EXPECT_NEAR(ends.Sum(), sum, 1e-12);
}

// A view that begins while one end has projected and the other has not finds them equal.
TEST(PowerEdgesTest, WarmFactorsOutliveAViewThatCutsAStepShort) {
  Ends ends(Frames()), cold(Frames());
  for (uint64_t step = 1; step <= 4; ++step) ends.Step(step);
  ends.Project(0, 5);
  for (int i = 0; i < 2; ++i) ends.Begin(i);
  cold.vector[0] = ends.vector[0], cold.vector[1] = ends.vector[1];
  ends.Step(1);
  cold.Step(1);
  EXPECT_EQ(ends.reseeds(0) + ends.reseeds(1), 0u);
  EXPECT_LT(ends.Distance(), cold.Distance());  // warm factors know where the ends differ
}

// A neighbour may send anything that is finite.
TEST(PowerEdgesTest, AHeadOfNonsenseIsOneOfOtherFactors) {
  for (const double nonsense : {-1e300, 1e300, 0.5, 255.0}) {
    Ends ends(Frames());
    for (int i = 0; i < 2; ++i) ends.Project(i, 1);
    for (int i = 0; i < 2; ++i) ends.Carry(i, 1);
    for (uint64_t v = 0; v < PowerFrames::kHead; ++v) ends.InFrame(0, 1, v) = nonsense;
    const auto before = ends.vector[0];
    ends.Apply(0, 1);
    EXPECT_EQ(ends.vector[0], before);
    EXPECT_EQ(ends.reseeds(0), 1u);
  }
}

}  // namespace
}  // namespace crowdsurf::worker
