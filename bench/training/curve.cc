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

double Smooth(const Outcome& curve, const char* name, int look) {
  double sum = 0;
  for (int i = 0; i < kSmoothed; ++i) sum += At(curve, name, look - i) / kSmoothed;
  return sum;
}

// `name` at the first look that is good enough.
template <class IsReached>
double ReachedAt(const Outcome& curve, const char* name, const IsReached& is_reached) {
  for (int look = kSmoothed - 1; look < LooksOf(curve); ++look)
    if (is_reached(look)) return At(curve, name, look);
  return kInfinity;
}

double LossReachedAt(const Outcome& curve, const char* name, double loss) {
  // Its mean with the two looks before it is low enough.
  return ReachedAt(curve, name, [&](int look) { return Smooth(curve, "loss", look) <= loss; });
}

}  // namespace

void Curve::Add(const Look& look) {
  const auto keep = [&](const char* name, double value) {
    outcome_[absl::StrCat(name, ".", looks_)] = value;
  };
  keep("seconds", look.seconds);
  keep("bytes", look.bytes);
  keep("loss", look.score.mean);
  keep("accuracy", look.score.accuracy);
  keep("spread", look.score.spread);
  outcome_["looks"] = ++looks_;
}

int LooksOf(const Outcome& curve) {
  const auto looks = curve.find("looks");
  return looks == curve.end() ? 0 : static_cast<int>(looks->second);
}

double LastLoss(const Outcome& curve) {
  return LooksOf(curve) < kSmoothed ? kInfinity : Smooth(curve, "loss", LooksOf(curve) - 1);
}

double LastAccuracy(const Outcome& curve) {
  return LooksOf(curve) < kSmoothed ? 0 : Smooth(curve, "accuracy", LooksOf(curve) - 1);
}

double LastSpread(const Outcome& curve) { return At(curve, "spread", LooksOf(curve) - 1); }

double SecondsTo(const Outcome& curve, double loss) {
  return LossReachedAt(curve, "seconds", loss);
}

double BytesTo(const Outcome& curve, double loss) { return LossReachedAt(curve, "bytes", loss); }

double SecondsToAccuracy(const Outcome& curve, double accuracy) {
  return ReachedAt(curve, "seconds",
                   [&](int look) { return Smooth(curve, "accuracy", look) >= accuracy; });
}

}  // namespace crowdsurf::bench
