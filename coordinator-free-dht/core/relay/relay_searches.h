// RelaySearches: how a way to an agent that cannot be dialed is found, hop by hop.
//
// An agent that cannot dial an end asks its neighbours (relay_paths.h). Each of them proves
// which peer listens there and dials it. After a short head start it asks its own neighbours, too,
// but not the asker. A few are asked first. When one of them says no, or none has answered after
// another head start, the others are asked. The first agent that connects answers. The connection
// is joined on that way, and every agent on it remembers the neighbour that it goes through. A
// search has a random number, so nobody works on it twice, and at most RelayConfig::hops. An agent
// that says no gives the strongest reason that it got. Only an agent that met the peer may say that
// it is dead.
//
// Inputs in, actions out; pure, single sequence. The owner dials, asks and joins, and reports the
// result. When a question is joined or answered no, the owner drops all that an action started for
// it. Cost: O(neighbours) a search. Bounds: RelayConfig, each with a counter.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/rng.h"
#include "coordinator-free-dht/core/relay/relay_paths.h"

namespace crowdsurf::dht {

// What a neighbour asks, as it goes over the wire.
struct RelayQuestion {
  std::string endpoint;  // the end: host:port
  uint64_t number = 0;   // of the search
  uint32_t hops = 0;     // gone so far, this one included: 1 when the one who searches asks
  PeerId asker;          // who is not asked back; only a hint
};

// `question` is the owner's number of it, never the search's.
struct RelayDial {
  uint64_t question = 0;
  std::string endpoint;
};
// Is that peer there? To be dialed as the agent dials for itself; OnProof follows.
struct RelayProve {
  uint64_t question = 0;
  Contact end;
  RelayPort port = RelayPort::kPeer;
};
struct RelayAsk {
  uint64_t question = 0;
  Contact neighbour;
  RelayQuestion ask;
};
struct RelayJoin {
  uint64_t question = 0;
  PeerId via;  // none: the own dial
};
struct RelayNo {
  uint64_t question = 0;
  RelayAnswer answer = RelayAnswer::kUnreachable;  // for the own agent kDead or kUnreachable
};
using RelayAction = std::variant<RelayDial, RelayProve, RelayAsk, RelayJoin, RelayNo>;
using RelayActions = std::vector<RelayAction>;

class RelaySearches {
 public:
  // References outlive this. `rng`: for the numbers of searches.
  RelaySearches(const RelayConfig& config, const PeerId& self, RelayPaths& paths,
                RelayMetrics& metrics, Rng rng);

  // The own agent wants a connection with `endpoint`, which it could not dial. `id` is new.
  void OnWanted(Time now, uint64_t id, const std::string& endpoint, RelayActions& out);
  // A neighbour asks. `id` is new.
  void OnQuestion(Time now, uint64_t id, const RelayQuestion& question, RelayActions& out);
  // The dial of `id` connected.
  void OnConnected(uint64_t id, RelayActions& out);
  // The dial of `id` failed.
  void OnDialFailed(Time now, uint64_t id, DownEvidence evidence, RelayActions& out);
  // An own dial of `endpoint` ended: RelayPaths knows whether it proved anything. `evidence` counts
  // when it did not.
  void OnProof(Time now, const std::string& endpoint, DownEvidence evidence, RelayActions& out);
  bool proving() const { return proving_ > 0; }
  // A neighbour answered, or its call ended (kUnreachable).
  void OnAnswer(Time now, uint64_t id, const PeerId& from, RelayAnswer answer, RelayActions& out);
  // The one who asked has gone, or the joined connection has ended. Unknown ids are ignored.
  void OnGone(uint64_t id);
  void OnTimer(Time now, RelayActions& out);
  Time NextDeadline() const;

  size_t searching() const { return searches_.size(); }
  size_t carried() const { return carried_.size() + searches_.size(); }

 private:
  struct Search {
    RelayQuestion question;  // as it is asked on, but for hops
    bool own = false;
    bool routed = false;  // only the neighbour of the route was asked
    bool dialing = false;
    bool proving = false;      // before it dials
    bool wide = false;         // those that were asked first do not know
    std::set<PeerId> asked;    // all
    std::set<PeerId> waiting;  // for their answer
    RelayAnswer strongest = RelayAnswer::kNothing;
    Time ask_at = Time::Infinite(), until;
  };

  // False: there are too many, and `id` is told so.
  bool Admit(uint64_t id, RelayActions& out);
  void Start(Time now, uint64_t id, Search search, RelayActions& out);
  void Begin(Time now, uint64_t id, Search& search, RelayActions& out);
  void AskOthers(Time now, uint64_t id, Search& search, RelayActions& out);
  void Ask(uint64_t id, Search& search, const PeerId& neighbour, RelayActions& out);
  void EndWhenOver(Time now, uint64_t id, RelayActions& out);
  void Join(uint64_t id, const PeerId& via, RelayActions& out);
  void SayNo(Time now, uint64_t id, RelayAnswer answer, RelayActions& out);
  bool Heard(Time now, uint64_t number);
  void Erase(uint64_t id);

  const RelayConfig& config_;
  const PeerId self_;
  RelayPaths& paths_;
  RelayMetrics& metrics_;
  Rng rng_;
  std::map<uint64_t, Search> searches_;
  std::set<uint64_t> carried_;
  size_t proving_ = 0;                  // searches
  Remembered<uint64_t, Time> numbers_;  // heard of, until when
};

}  // namespace crowdsurf::dht
