// Lookup: the iterative search for the k peers closest to a point, as an object without I/O.
//
// The owner asks whom Next() names and reports what came of it. alpha queries are in flight; one
// that became slow (OnSlow) no longer counts, so another is asked as well (hedge), and its late
// answer still helps. Over when the k closest candidates that did not fail have all answered
// (Kademlia 2.3). Differences from the paper: alpha queries flow instead of going in rounds;
// candidates and queries are bounded, so liars cannot keep it alive. Owned by Node; single
// sequence.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "coordinator-free-dht/core/port/config.h"
#include "coordinator-free-dht/core/wire/message.h"

namespace crowdsurf::dht {

class Lookup {
 public:
  // `start`: whom to ask first; `self` is never asked.
  Lookup(const Key& target, const PeerId& self, const NodeConfig& config,
         const std::vector<Contact>& start);

  // Whom to ask now, or nobody: enough in flight, or nobody left. Call until it says nobody.
  std::optional<Contact> Next();
  // `id` answered and knows `contacts`.
  void OnSuccess(const PeerId& id, const std::vector<Contact>& contacts);
  void OnSlow(const PeerId& id);
  void OnFailure(const PeerId& id);

  bool Done() const;
  // The at most k closest that answered, closest first.
  std::vector<Contact> Nearest() const;
  const Key& target() const { return target_; }
  int queries() const { return queries_; }
  // Length of the longest chain of "told me of" that ended in an answer among Nearest(): the number
  // of round trips that the search needed.
  int hops() const;

 private:
  enum class State : uint8_t { kNew, kAsked, kSlow, kAnswered, kFailed };
  struct Candidate {
    Contact contact;
    State state = State::kNew;
    int depth = 1;
  };
  void Add(const Contact& contact, int depth);
  Candidate* Find(const PeerId& id);
  bool Exhausted() const { return queries_ >= queries_allowed_; }

  const Key target_;
  const PeerId self_;
  const size_t k_;
  const int alpha_;
  const int queries_allowed_;
  std::map<Distance, Candidate> candidates_;
  int in_flight_ = 0;  // asked and not slow
  int queries_ = 0;
};

}  // namespace crowdsurf::dht
