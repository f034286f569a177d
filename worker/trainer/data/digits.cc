#include "worker/trainer/data/digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace crowdsurf::trainer {
namespace {

constexpr int kBlobs = 4;            // strokes of a template
constexpr double kBlobRadius = 1.2;  // pixels
constexpr int kMove = 1;             // pixels, each way and axis
constexpr double kDim = 0.3;         // brightness 1 +- this

using Template = std::array<double, kDigitFeatures>;

// A sum of Gaussian blobs at random places, brightness about 1 in their middle.
Template MakeTemplate(Rng& rng) {
  Template pixels{};
  constexpr double kInside = kDigitSide - 3.0;  // keeps moved blobs in the picture
  for (int blob = 0; blob < kBlobs; ++blob) {
    const double row = 1 + kInside * rng.UniformDouble(),
                 column = 1 + kInside * rng.UniformDouble();
    for (size_t i = 0; i < kDigitFeatures; ++i) {
      const size_t at_row = i / kDigitSide, at_column = i % kDigitSide;
      const double dr = static_cast<double>(at_row) - row;
      const double dc = static_cast<double>(at_column) - column;
      pixels[i] += std::exp(-(dr * dr + dc * dc) / (2 * kBlobRadius * kBlobRadius));
    }
  }
  return pixels;
}

double PixelOf(const Template& pixels, int row, int column) {
  constexpr int kSide = static_cast<int>(kDigitSide);
  // A moved picture shows what lay outside its template: the dark.
  if (row < 0 || column < 0 || row >= kSide || column >= kSide) return 0;
  return pixels[static_cast<size_t>(row) * kDigitSide + static_cast<size_t>(column)];
}

DigitSet MakeSet(const std::array<Template, kDigitClasses>& templates, size_t examples,
                 double noise, Rng rng) {
  DigitSet set;
  set.features.resize(kDigitFeatures, static_cast<Eigen::Index>(examples));
  for (Eigen::Index j = 0; j < set.features.cols(); ++j) {
    const auto label = static_cast<uint8_t>(rng.Uniform(kDigitClasses));
    const int down = static_cast<int>(rng.Uniform(2 * kMove + 1)) - kMove;
    const int right = static_cast<int>(rng.Uniform(2 * kMove + 1)) - kMove;
    const double light = 1 + kDim * (2 * rng.UniformDouble() - 1);
    for (int i = 0; i < static_cast<int>(kDigitFeatures); ++i) {
      const int side = static_cast<int>(kDigitSide);
      const double pixel = PixelOf(templates[label], i / side - down, i % side - right);
      set.features(i, j) = static_cast<float>(light * pixel + noise * rng.Normal());
    }
    set.labels.push_back(label);
  }
  return set;
}

}  // namespace

Digits MakeDigits(const DigitOptions& options) {
  const Rng rng(options.seed);
  Rng shapes = rng.Fork("templates");
  std::array<Template, kDigitClasses> templates;
  for (Template& pixels : templates) pixels = MakeTemplate(shapes);
  // A stream each: another number of training examples leaves the held-out ones as they are.
  return {.train = MakeSet(templates, options.train, options.noise, rng.Fork("train")),
          .held_out = MakeSet(templates, options.held_out, options.noise, rng.Fork("held-out"))};
}

DigitSet ShardByLabel(const DigitSet& all, size_t index, size_t count) {
  CHECK_LT(index, count);
  std::vector<Eigen::Index> order(all.size());
  std::iota(order.begin(), order.end(), Eigen::Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Eigen::Index a, Eigen::Index b) {
    return all.labels[static_cast<size_t>(a)] < all.labels[static_cast<size_t>(b)];
  });
  const size_t first = all.size() * index / count, last = all.size() * (index + 1) / count;
  DigitSet shard;
  shard.features.resize(all.features.rows(), static_cast<Eigen::Index>(last - first));
  for (size_t i = first; i < last; ++i) {
    shard.features.col(static_cast<Eigen::Index>(i - first)) = all.features.col(order[i]);
    shard.labels.push_back(all.labels[static_cast<size_t>(order[i])]);
  }
  return shard;
}

}  // namespace crowdsurf::trainer
