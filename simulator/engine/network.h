// Network: virtual links between numbered nodes, as bad as the seed says.
//
// A frame is delivered never, once or twice, after a delay drawn from the link's distribution, in
// order or not. Links can be cut one way and nodes be set apart in sides (a partition). A frame in
// flight when its link is cut is lost at delivery. Heal() makes every link perfect but not instant.
// Owner: one world; single sequence. Model: docs/simulator.md (frames
// are delayed, reordered and lost, connections cut).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "simulator/engine/event_queue.h"

namespace crowdsurf::simulator {

struct LinkOptions {
  Duration min_delay = Microseconds(100);
  Duration mean_extra_delay = Microseconds(100);  // exponential
  double slow = 0;                                // chance of a frame that is `slow_factor` later
  double slow_factor = 100;
  double loss = 0;
  double duplicate = 0;
  bool in_order = true;  // per (from, to, plane), as a connection is; false: frames overtake
  // Of each node's way out, and of its way in: frames queue there. 0: any number at once.
  double bytes_per_second = 0;
  double tensor_loss = 0;  // of frames with values, beside `loss`
};

// Frames of different planes travel on connections of their own and may overtake each other.
enum class Plane : uint8_t { kControl, kTensor, kRecords };

struct FrameOnLink {
  int from = 0;
  int to = 0;
  Plane plane = Plane::kControl;
  size_t bytes = 0;
};

class Network {
 public:
  Network(EventQueue& queue, Rng rng, LinkOptions options)
      : queue_(queue), rng_(rng), options_(options) {}

  // `deliver` runs 0, 1 or 2 times, later.
  void Send(const FrameOnLink& frame, std::function<void()> deliver);
  void Send(int from, int to, Plane plane, std::function<void()> deliver) {
    Send({from, to, plane}, std::move(deliver));
  }

  void Cut(int from, int to);                 // one way
  void Restore(int from, int to);             // ends a cut
  void Partition(const std::set<int>& side);  // these on one side, all others on the other
  void EndPartition() { side_.clear(); }
  void Heal();  // no cut, no partition, no loss, no copies, in order, nothing slow
  bool Reaches(int from, int to) const;
  // From now on, in the place of LinkOptions' bytes_per_second: of that node's way out, and in.
  void SetRate(int node, double bytes_per_second) { rates_[node] = bytes_per_second; }

  uint64_t sent() const { return sent_; }
  uint64_t lost() const { return lost_; }
  const LinkOptions& options() const { return options_; }

 private:
  Duration Delay();
  double RateOf(int node) const;
  // When the last byte of the frame, sent now, is there.
  Time ArrivalOf(const FrameOnLink& frame);
  void Schedule(const FrameOnLink& frame, std::function<void()> deliver);

  EventQueue& queue_;
  Rng rng_;
  LinkOptions options_;
  std::set<std::pair<int, int>> cuts_;
  std::set<int> side_;
  std::map<std::pair<int, int>, Time> last_[3];  // by plane: the latest delivery promised
  std::map<int, double> rates_;                  // by node, where it has one of its own
  std::map<int, Time> out_free_, in_free_;       // by node: when its way out, and in, is free
  uint64_t sent_ = 0;
  uint64_t lost_ = 0;
};

}  // namespace crowdsurf::simulator
