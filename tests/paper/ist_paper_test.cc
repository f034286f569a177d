// Claims about Independent Subnet Training (Yuan et al. 2022, arXiv 1910.02120), each against its
// closed form. `./dev bench convergence` prints the bytes with their headers.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "worker/core/subnet/subnet.h"
#include "worker/core/subnet/subnet_exchange.h"
#include "worker/core/subnet/unit_partition.h"

namespace crowdsurf::worker {
namespace {

UnitSchema SchemaOf(std::vector<UnitTensor> tensors) {
  auto schema = UnitSchema::Of(std::move(tensors));
  CHECK(schema.ok());
  return *std::move(schema);
}

// A classifier of fully connected layers with biases; hidden layer l is group l.
UnitSchema Classifier(const std::vector<uint64_t>& widths) {
  std::vector<UnitTensor> tensors;
  for (size_t l = 0; l + 1 < widths.size(); ++l) {
    std::vector<UnitAxis> out, in;
    if (l + 2 < widths.size()) out.push_back({.axis = 0, .group = static_cast<uint32_t>(l)});
    if (l > 0) in.push_back({.axis = 1, .group = static_cast<uint32_t>(l - 1)});
    std::vector<UnitAxis> both = out;
    both.insert(both.end(), in.begin(), in.end());
    tensors.push_back({"weight", {widths[l + 1], widths[l]}, both});
    tensors.push_back({"bias", {widths[l + 1]}, out});
  }
  return SchemaOf(std::move(tensors));
}

// Floats that all members send in one averaging, of n times a ring's 2 P (n - 1) / n.
double ShareOfRing(const UnitSchema& schema, size_t n) {
  const UnitPartition partition({7, 1, AveragingId(1)}, std::vector<uint32_t>(n, 1),
                                schema.units());
  const SubnetExchange exchange(schema, partition, 1 << 20);
  uint64_t floats = 0;
  for (const SubnetChunk& chunk : exchange.chunks()) {
    floats += (n - 1) * chunk.span.count;
    for (size_t rank = 0; rank < n; ++rank) floats += chunk.HasInputOf(rank) ? chunk.span.count : 0;
  }
  return static_cast<double>(floats) /
         (2.0 * static_cast<double>(schema.elements()) * static_cast<double>(n - 1));
}

// Section 3.2: a worker gets 1/n of the first and last matrix and 1/n^2 of each between them, so an
// averaging is an all-gather of parts that shrink: half of a ring's bytes with one hidden layer,
// (f + (1 - f) / n) / 2 with two, f being the share of the outer matrices.
TEST(IstPaperTest, BytesFallWithDepthAndWorkers) {
  struct Row {
    size_t n;
    double one, two;
  };
  for (const Row& row : {Row{2, .500, .287}, Row{4, .500, .180}, Row{8, .501, .127}}) {
    EXPECT_NEAR(ShareOfRing(Classifier({667, 4096, 35}), row.n), row.one, .0015) << row.n;
    EXPECT_NEAR(ShareOfRing(Classifier({667, 4096, 4096, 35}), row.n), row.two, .0015) << row.n;
  }
  const double inner = 512.0 * 512, outer = 64 * 512 + 512 + 512 + 10 * 512 + 10;
  // The output bias, which all cover, goes to its reducer and back.
  EXPECT_NEAR(ShareOfRing(Classifier({64, 512, 512, 10}), 4) * 2 * (outer + inner),
              outer + inner / 4 + 10, 1e-6);
}

// Off-diagonal blocks are nobody's in an averaging; which ones changes, so an entry between two
// hidden layers is left out R times in a row with probability (1 - 1/n)^R.
TEST(IstPaperTest, AnInnerEntryIsLeftOutByChanceAlone) {
  constexpr int kRounds = 10, kRuns = 40;
  constexpr size_t kWidth = 32;
  for (const size_t n : {2, 4, 8}) {
    double never = 0;
    for (uint64_t seed = 1; seed <= kRuns; ++seed) {
      std::vector<bool> touched(kWidth * kWidth);
      for (uint64_t averaging = 0; averaging < kRounds; ++averaging) {
        const UnitPartition partition({seed, 1, AveragingId(averaging)},
                                      std::vector<uint32_t>(n, 1), {{0, kWidth}, {1, kWidth}});
        for (size_t member = 0; member < n; ++member) {
          for (const uint32_t row : partition.SetsOf(member).at(1)) {
            for (const uint32_t col : partition.SetsOf(member).at(0))
              touched[row * kWidth + col] = true;
          }
        }
      }
      never += static_cast<double>(std::count(touched.begin(), touched.end(), false));
    }
    const double expected = std::pow(1 - 1.0 / static_cast<double>(n), kRounds);
    EXPECT_NEAR(never / (kRuns * kWidth * kWidth), expected, .1 * expected + .0005) << n;
  }
}

// The sum into the next layer, over a member's units and scaled by the inverse of its share, is
// that of the whole layer in expectation, also with unequal shares.
TEST(IstPaperTest, ScaledActivationsAreUnbiased) {
  constexpr uint32_t kUnits = 12;
  Rng rng(3);
  std::vector<double> terms(kUnits);
  double whole = 0;
  for (double& term : terms) whole += term = 1 + rng.UniformDouble();
  const std::vector<uint32_t> weights = {1, 2, 5};
  std::vector<double> mean(weights.size());
  constexpr int kAveragings = 20'000;
  for (uint64_t averaging = 0; averaging < kAveragings; ++averaging) {
    const UnitPartition partition({5, 1, AveragingId(averaging)}, weights, {{0, kUnits}});
    for (size_t member = 0; member < weights.size(); ++member) {
      const auto& active = partition.SetsOf(member).at(0);
      for (const uint32_t unit : active)
        mean[member] += ActivationScale(kUnits, active.size()) * terms[unit] / kAveragings;
    }
  }
  for (const double sum : mean) EXPECT_NEAR(sum / whole, 1, .005);
}

}  // namespace
}  // namespace crowdsurf::worker
