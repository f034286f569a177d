// Seeds: addresses to ask for company, again and again for ever.
//
// A seed that does not answer is retried with jittered back-off; one that answers is asked again
// every NodeConfig::seed_again. That is what joins a network that split, or that re-formed from
// nothing while we knew only dead peers. Bounded: the oldest address goes. Owned by Node; single
// sequence.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "coordinator-free-dht/core/port/config.h"

namespace crowdsurf::dht {

class Seeds {
 public:
  Seeds(const NodeConfig& config, Rng rng) : config_(config), rng_(rng) {}

  // Adds an address, due at once. A known one becomes due at once if it did not answer last time.
  void Add(Time now, const std::string& endpoint);
  // The next address to ask now; marks it as being asked.
  std::optional<std::string> NextDue(Time now);
  void OnAnswer(Time now, const std::string& endpoint);
  void OnFailure(Time now, const std::string& endpoint);
  // All connections may be gone: every seed is due soon.
  void Hurry(Time now);

  // Is there a seed of which we do not know yet whether it answers?
  bool AwaitingFirstAnswers() const;
  // The addresses that are known for kSilentAfter and never answered, oldest first.
  std::vector<std::string> Silent(Time now) const;
  Time NextDeadline() const;
  size_t size() const { return seeds_.size(); }

  // A peer that starts beside this one has answered by then: it was asked some eight times.
  static constexpr Duration kSilentAfter = Seconds(15);

 private:
  struct Seed {
    std::string endpoint;
    Time next;
    int failures = 0;
    bool asking = false;
    bool settled = false;   // answered or failed at least once
    bool answered = false;  // at least once
    Time since;             // when it was first named
  };
  Seed* Find(const std::string& endpoint);

  const NodeConfig& config_;
  Rng rng_;
  std::vector<Seed> seeds_;  // oldest first
};

}  // namespace crowdsurf::dht
