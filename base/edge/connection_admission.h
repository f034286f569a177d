// ConnectionAdmission: which connection of a port makes room for a new one.
//
// One rule for every server. A connection is a stranger while it has said nothing (kSilent) or not
// all that it must (kUnfinished): no whole request, no handshake, no name. Strangers have a bound
// in all and one an address, and make room before anybody else. So a flood from one address
// displaces itself, and who has said nothing goes before who has begun. Pure; one thread. Cost of a
// call: O(log connections), but O(addresses) where a bound is reached. Bound: the caller's, who
// adds what MakeRoom has let in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace crowdsurf {

class ConnectionAdmission {
 public:
  using Id = uint64_t;
  // In the order of who goes first.
  enum class Phase : uint8_t { kSilent, kUnfinished, kIdle, kReplying, kHeld };
  struct Limits {
    size_t connections;           // in all
    size_t strangers;             // of them
    size_t strangers_of_address;  // of those
    size_t of_owner = SIZE_MAX;   // that have proved the same owner
    // An unfinished one of another address is not displaced sooner after its arrival. A burst of
    // honest ones would else displace itself without end.
    Duration patience = {};
  };
  enum class Bound : uint8_t { kConnections, kStrangers, kAddress };
  struct Room {
    std::optional<Bound> reached;  // nullopt: there is room
    std::optional<Id> victim;      // goes for the new one; nullopt with `reached`: the new one goes
  };

  explicit ConnectionAdmission(const Limits& limits) : limits_(limits) {}

  // Whether one more from `address` may come now, and who goes for it. Changes nothing.
  Room MakeRoom(Time now, const std::string& address) const;
  // A new connection, kSilent. Pre: MakeRoom let it in, and `id` is new.
  void Add(Time now, Id id, const std::string& address);
  // The connection is in `phase` from now on. Unknown ids are ignored.
  void Enter(Id id, Phase phase);
  // It has proved to be of `owner`, and is kHeld. That owner's oldest, where it has too many.
  std::optional<Id> Own(Id id, const std::string& owner);
  void Leave(Id id);
  // For want of a descriptor; nullopt when all are held.
  std::optional<Id> Victim() const;
  // Those in `phase` that came before `since`. O(connections).
  std::vector<Id> Overdue(Phase phase, Time since) const;
  size_t size() const { return places_.size(); }

 private:
  static constexpr size_t kPhases = 5;
  struct Source {                               // one address
    std::array<std::list<Id>, kPhases> phases;  // oldest first
    size_t strangers() const { return phases[0].size() + phases[1].size(); }
    size_t displaceable() const;
    // The first in the order of the phases before `end`.
    std::optional<Id> First(Phase end) const;
  };
  using Sources = std::map<std::string, Source>;
  struct Place {
    Phase phase;
    Sources::iterator source;
    std::list<Id>::iterator at;
    Time since;  // it came
    std::string owner = {};
  };

  // The source for which `count` is largest; among equals the one whose first goes before.
  template <class Count>
  const Source* Most(Count count) const;
  Room Displace(Time now, Bound bound, const Source* source, const Source* own) const;
  void Remove(const Place& place);

  const Limits limits_;
  Sources sources_;
  std::map<Id, Place> places_;
  std::map<std::string, std::list<Id>> owners_;  // oldest first
  size_t strangers_ = 0;
};

}  // namespace crowdsurf
