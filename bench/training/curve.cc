#include "bench/training/curve.h"

#include <absl/strings/str_cat.h>

#include <limits>
#include <string>

namespace crowdsurf::bench {
namespace {

constexpr int kSmoothed = 3;  // looks
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double At(const Outcome& curve, const char* name, int look) {
  return curve.at(absl::StrCat(name, ".", look));
}

double SmoothLoss(const Outcome& curve, int look) {
  double sum = 0;
  for (int i = 0; i < kSmoothed; ++i) sum += At(curve, "loss", look - i) / kSmoothed;
  return sum;
}

double ReachedAt(const Outcome& curve, const char* name, double loss) {
  // The first look whose mean with the two before it is low enough.
  for (int look = kSmoothed - 1; look < LooksOf(curve); ++look)
    if (SmoothLoss(curve, look) <= loss) return At(curve, name, look);
  return kInfinity;
}

}  // namespace

void Curve::Add(const Look& look) {
  const auto keep = [&](const char* name, double value) {
    outcome_[absl::StrCat(name, ".", looks_)] = value;
  };
  keep("seconds", look.seconds);
  keep("bytes", look.bytes);
  keep("loss", look.score.mean);
  keep("spread", look.score.spread);
  outcome_["looks"] = ++looks_;
}

int LooksOf(const Outcome& curve) {
  const auto looks = curve.find("looks");
  return looks == curve.end() ? 0 : static_cast<int>(looks->second);
}

double LastLoss(const Outcome& curve) {
  return LooksOf(curve) < kSmoothed ? kInfinity : SmoothLoss(curve, LooksOf(curve) - 1);
}

double LastSpread(const Outcome& curve) { return At(curve, "spread", LooksOf(curve) - 1); }

double SecondsTo(const Outcome& curve, double loss) { return ReachedAt(curve, "seconds", loss); }
double BytesTo(const Outcome& curve, double loss) { return ReachedAt(curve, "bytes", loss); }

}  // namespace crowdsurf::bench
