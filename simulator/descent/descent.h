// Descent: a whole job of real peers in virtual time whose trainers minimise something, while
// workers die and join: does the job still end at the optimum of who is left?
//
// Worker i has f_i(x) = 1/2 sum over k of h_ik (x_k - c_ik)^2, with curvatures h in [1/4, 1] and
// centres c of its own; the job's optimum is the minimum of the sum of the losses of who lives at
// the end, x*_k = sum of h_ik c_ik / sum of h_ik, computed here in double from the drawn losses
// alone. Trainers take full gradient steps of one constant rate g and are Blocking with an interval
// of one step, so that what is averaged is y_i = x_i - g f_i'(x_i), one step from the last result:
//  - Moshpit, weighting Equal: everybody gets x = mean of y_i = x - g mean of f_i'(x): plain
//    gradient descent on the mean loss. g h < 2, so it contracts by at least 1 - g/4 an averaging.
//  - RelaySum: x_i = (sum of the latest y_j that reached i) / n. At a fixed point all x_i are one x
//    with x = x - g mean of f_j'(x), whatever the delays; the rate is multiplied by the tree's
//    factor at everybody alike.
// Either way the one fixed point is x*, and nothing of the past (other views, samples of the dead,
// one averaging that failed) is in it: after the last change the distance falls geometrically to
// the rounding of float32. Who is not in the view of the others, takes another number of steps
// between two averages, or holds a stale one, stays a visible distance away.
//
// With models of the caller's own (`worker`) nobody knows the optimum, and the caller judges what
// it sees of them (`on_look`).
//
// Differs from ChaosWorld: no faults of the network, no checkers inside; the judge is x*. Values;
// deterministic under seed. Source: docs/simulator.md (kill three of sixteen, add two).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/time.h"
#include "simulator/descent/descent_average.h"
#include "simulator/descent/descent_model.h"
#include "simulator/descent/quadratic.h"
#include "simulator/engine/network.h"
#include "worker/core/subnet/unit_schema.h"
#include "worker/core/vector/tensor_view.h"
#include "worker/core/view/averaging_config.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::simulator {

// What a worker trains, and how long one step takes it.
struct DescentWorker {
  std::unique_ptr<DescentModel> model;
  Duration step_time;
};

// A descent in mid-run. Spans are good during the call.
struct DescentLook {
  struct Worker {
    int node = 0;
    uint64_t steps = 0;
    std::span<const float> model;
    std::span<const float> averaged;  // as its last result left it; before one, the model
  };
  Duration at;  // since the start
  std::vector<Worker> living;
  uint64_t steps = 0;         // of all who ever were in the job
  uint64_t tensor_bytes = 0;  // values sent by all of them
  uint64_t pair_ends = 0;     // of exchanges in pairs that moved a model of who lives now
};

// The configuration of all workers changes then: the next view has it.
struct DescentSwitch {
  Duration at;
  worker::AveragingConfig averaging;  // a newer generation
};

struct DescentOptions {
  worker::AveragingConfig averaging = {};  // strategy and what it needs
  int members = 16;
  uint32_t dimensions = 10;
  worker::TensorViews tensors = {};  // of the model, for strategies that need shapes
  worker::UnitSchema units = {};     // of the model, for IST
  double learning_rate = 0.5;
  double heterogeneity = 1;  // standard deviation of the centres
  double rate_spread = 0;    // a worker's learning rate is up to that share higher
  Duration step_time = Milliseconds(20);
  double speed_spread = 0.3;  // a trainer's step takes up to that share longer
  // Worker `node` of all who ever join; empty: the quadratic of above, of the step time of above.
  std::function<DescentWorker(int node)> worker = {};
  uint64_t steps = 0;  // each trainer ends after these; 0: with the job
  std::function<void(const DescentLook&)> on_look = {};
  Duration look_every = Seconds(1);
  size_t chunk_elements = 4;  // several chunks a vector
  LinkOptions links = {};
  uint64_t seed = 1;
  // When workers die and join; who dies is `victims`, or drawn where it ends. Worker 0 starts
  // first: it is the longest-lived, the first steward.
  std::vector<Duration> deaths = {Seconds(1.5), Seconds(2.2), Seconds(2.6)};
  std::vector<int> victims = {0};
  std::vector<Duration> joins = {Seconds(2), Seconds(3)};
  std::vector<DescentSwitch> switches = {};
  Duration end = Seconds(8);
  uint64_t max_events = 50'000'000;  // the run ends there, too
  // Faults put into the host, to see the judge turn red. Worker 1 takes two steps between averages;
  // worker 1 is cut off from everybody from the second second on, for ever.
  bool plant_second_step = false;
  bool plant_alone = false;
  LogSink* log = nullptr;  // what the agents say; outlives the run
};

struct DescentResult {
  // Greatest Euclidean distance of a survivor's model, as its last average left it, to x*. Infinite
  // when a survivor has not got an average within the last second; else 0 with models of the
  // caller's own.
  double distance = std::numeric_limits<double>::infinity();
  // Mean over the survivors of the squared distance; infinite as above.
  double mean_square = std::numeric_limits<double>::infinity();
  std::vector<double> lr_scales;  // of the survivors
  double shift = 0;       // from the optimum of all who ever were in the job to x*: the scale
  bool together = false;  // survivors are seated in one view of exactly them
  int survivors = 0;
  uint64_t results = 0;    // averages that trainers took, over all workers
  uint64_t abandoned = 0;  // averagings that gave a survivor nothing
  uint64_t events = 0;
  uint64_t trace = 0;
  // By worker: what it took part in, by averaging; and what it minimises.
  std::vector<std::map<worker::AveragingId, DescentAverage>> averages;
  std::vector<Quadratic> losses;
  std::vector<bool> died;
  std::string words;  // who is where, for a failure's message
};

// Moshpit: interval 1 step, Blocking, Equal, no compression, groups of 4. RelaySum: the same
// cadence, on `tree`. Pre: strategy is one of them.
worker::AveragingConfig DescentAveraging(worker::StrategyKind strategy, worker::GraphKind tree);

// RelaySum as a manifest has it by default, with an average a step, on a chain of sixteen that
// nobody leaves; their steps are equally long.
DescentOptions RelayDescent(uint64_t seed);

DescentResult RunDescent(const DescentOptions& options);

}  // namespace crowdsurf::simulator
