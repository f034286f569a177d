// Curve: the looks at a run in order, as an outcome that a file can keep.
//
// Losses are read as the mean of three looks, because one is as noisy as its batches. Values.
#pragma once

#include "bench/training/runs.h"
#include "bench/training/workload.h"

namespace crowdsurf::bench {

class Curve {
 public:
  struct Look {
    double seconds = 0;
    double bytes = 0;  // of all workers
    Score score;
  };
  void Add(const Look& look);
  const Outcome& outcome() const { return outcome_; }

 private:
  Outcome outcome_;
  int looks_ = 0;
};

// Pre of all: `curve` is a Curve's outcome.
int LooksOf(const Outcome& curve);
// Infinite with fewer than three looks.
double LastLoss(const Outcome& curve);
// Percent, the mean of three looks; 0 with fewer.
double LastAccuracy(const Outcome& curve);
// Root mean square distance of the models to their mean, at the end.
double LastSpread(const Outcome& curve);
// Where the loss was reached first; infinite where it never was.
double SecondsTo(const Outcome& curve, double loss);
double BytesTo(const Outcome& curve, double loss);
// The same for an accuracy, in percent.
double SecondsToAccuracy(const Outcome& curve, double accuracy);

}  // namespace crowdsurf::bench
