// PeersRun: a training job of real peers in virtual time: production cores, computed gradients,
// drawn links.
//
// A step takes its operations over `flops_per_second`, times the worker's own slowness. What is
// judged are the trainers' own models, or the averages that they were given. Deterministic under
// the seed. Owner: the caller; single sequence. Cost: the gradients, and some microseconds a frame
// (simulator/descent/descent.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/time.h"
#include "bench/training/task_model.h"
#include "bench/training/workload.h"
#include "simulator/descent/descent.h"

namespace crowdsurf::bench {

struct PeersOptions {
  // Strategy, members, links, seed, deaths, joins, end, looks; the rest is set here.
  simulator::DescentOptions descent;
  StepOptions step;
  uint64_t steps = 0;  // a worker takes; 0: until the end
  double flops_per_second = 1e9;
  std::function<double(int node)> slowness = {};  // empty: 1
  size_t chunk_elements = 32'768;                 // as agents have it
  size_t judged = 16;  // models at a look, evenly chosen; all of them at the last
  // Judge models as their last averaging left them, not with what a worker has trained since: what
  // the job would save. Of IST the whole model is one only then.
  bool judge_averages = false;
};

// What was seen at a look.
struct Glance {
  double seconds = 0;    // of virtual time
  double steps = 0;      // of all workers
  double bytes = 0;      // of values sent by all
  double pair_ends = 0;  // of exchanges in pairs that moved the model of one who lives
  int living = 0;
  Score score;
};

// The looks in order; the last is of the end.
std::vector<Glance> RunPeers(const PeersOptions& options, Workload& workload);

// No deaths, joins or drawn speeds; links of .1 ms and an exponential .1 ms more.
simulator::DescentOptions QuietDescent(const worker::AveragingConfig& averaging, int members,
                                       uint64_t seed);

}  // namespace crowdsurf::bench
