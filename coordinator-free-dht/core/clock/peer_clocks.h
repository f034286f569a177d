// PeerClocks: how far this machine's wall clock is from the job's time.
//
// The job's time is the median of the clocks of its peers, this one counted. No record of a machine
// with a wrong clock then dies early, and none outlives its life. A reading counts for its key, so
// one certificate is one voter, however many ids it makes. The round trip bounds how wrong a
// reading can be, and the best reading of each key counts. One liar moves the median no further
// than to the next honest clock. Where only two clocks are known, the job's time lies between
// them: both ends take the same.
//
// Clocks are kept as distances from the monotonic clock, so a step of this machine's wall clock is
// seen at once. Owned by Node; single sequence. A call costs O(kMostPeers) at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/time.h"
#include "coordinator-free-dht/core/port/clocks.h"
#include "coordinator-free-dht/core/wire/record.h"

namespace crowdsurf::dht {

// What became of a reading of a peer's clock.
enum class ClockSample : uint8_t {
  kTaken,
  kWorse,     // one with a shorter round trip is known
  kSlow,      // its round trip is above PeerClocks::kLongestRoundTrip
  kFar,       // further away than PeerClocks::kFurthest
  kUnproved,  // its sender did not prove its key
};
constexpr size_t kClockSamples = 5;
const char* Name(ClockSample sample);  // as the metric says it

class PeerClocks {
 public:
  // Peers that count. More of them move a median by little.
  static constexpr size_t kMostPeers = 32;
  // Half of it may be the error. A record lives three seconds.
  static constexpr Duration kLongestRoundTrip = Seconds(2);
  // Certificates live a day. A machine whose clock is further off has none that is good.
  static constexpr Duration kFurthest = Seconds(24 * 3600);
  // A better reading is kept so long. Quartz drifts by 100 ppm, which makes 6 ms.
  static constexpr Duration kPreferred = Seconds(60);
  // A peer that says nothing for so long does not count any more.
  static constexpr Duration kForgotten = Seconds(600);

  // `peer`'s clock said `wall` at some moment of the last `round_trip`. The caller has proof that
  // the peer has this key.
  ClockSample Add(const Clocks& at, const PublicKey& peer, WallTime wall, Duration round_trip);

  // What has to be added to this machine's wall clock to get the job's time. Zero without peers.
  Duration Offset(const Clocks& at) const;
  // `at` with the job's time instead of this machine's.
  Clocks JobTime(const Clocks& at) const { return {at.now, at.wall + Offset(at)}; }

  size_t peers() const { return readings_.size(); }
  // Deep size, estimated; a node of the map has some 48 bytes of its own.
  size_t MemoryBytes() const {
    return sizeof *this + readings_.size() * (sizeof(PublicKey) + sizeof(Reading) + 48) +
           ahead_.capacity() * sizeof(int64_t);
  }

 private:
  struct Reading {
    int64_t ahead = 0;  // ns: the peer's wall clock less our monotonic one
    Duration error;
    Time taken;
    Time heard;
  };
  void MakeRoom(Time now);
  void Sort();

  std::map<PublicKey, Reading> readings_;
  std::vector<int64_t> ahead_;  // of all readings, ascending
};

}  // namespace crowdsurf::dht
