// SubnetTrial: one run of the classifier by sub-networks, local SGD or all-reduce, for the figures
// of IST.
//
// Real peers in virtual time, but for all-reduce; the outcome is a Curve of the last averages.
// Values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/training/runs.h"
#include "bench/training/task_model.h"
#include "bench/training/workload.h"

namespace crowdsurf::bench {

struct SubnetTrial {
  const char* name;        // of the method
  bool subnets = false;    // IST; else whole models
  bool lock_step = false;  // all-reduce at every step, on the clock of lock_step_times.h
  uint32_t workers = 4;
  std::vector<size_t> hidden = {512};
  double interval = 10;  // steps
  double rate = 0;
  uint64_t seed = 0;
  uint64_t steps = 1000;
  double bytes_per_second = 0;  // of each worker's way out, and in; 0: without end

  RunSpec Spec() const;

 private:
  std::string key() const;
  Outcome Run() const { return lock_step ? RunAllReduce() : RunOfPeers(); }
  Outcome RunOfPeers() const;
  Outcome RunAllReduce() const;
  StepOptions Steps() const;
  DigitsWorkload MakeWorkload() const;
  // Of the whole run, by what must be computed and sent.
  double LeastSeconds(double step_seconds, double vector_bytes) const;
};

// Rates a factor of two apart, the same for every method of these figures: plain SGD on one hidden
// layer wants larger ones than RateGrid has.
std::vector<double> SubnetRates();

}  // namespace crowdsurf::bench
