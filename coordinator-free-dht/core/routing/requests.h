// Requests: what a node asked and has no answer to yet, with each one's two deadlines.
//
// A request becomes *slow* (its owner asks somebody else as well) and later *failed*; a failed one
// is remembered a while, so that a late reply still proves its peer alive. Every request ends
// exactly once: Take, or failed by NextDue, TakeAllTo or TakeSeed. Bounded. Owned by Node; single
// sequence.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/time.h"
#include "coordinator-free-dht/core/port/config.h"
#include "coordinator-free-dht/core/wire/message.h"

namespace crowdsurf::dht {

// Why a request was sent: what its end means.
struct LookupQuery {
  uint64_t lookup = 0;
};
struct SeedProbe {};  // of the address in Request::to
struct Ping {};
struct OwnStore {  // first or second try to place an own record
  Key key;
  uint64_t sequence = 0;
  int attempt = 1;
};
struct FireAndForget {};  // records for another holder, the end of a watch: nothing follows
struct WatchAsk {
  Key key;
};
using Purpose = std::variant<LookupQuery, SeedProbe, Ping, OwnStore, FireAndForget, WatchAsk>;

struct Request {
  Contact to;
  Purpose purpose;
  Time sent;
  bool failed = false;  // already reported as failed; only a late reply can come
};

class Requests {
 public:
  // `first_id`: a random start, so that ids of two lives of an address differ.
  Requests(const NodeConfig& config, uint64_t first_id) : config_(config), next_id_(first_id) {}

  // The id for the message, or nullopt when too many are open.
  std::optional<uint64_t> Add(Time now, const Contact& to, Purpose purpose, Duration slow_after,
                              Duration fail_after);
  // The request that a reply of `from` with `id` answers; gone from here then.
  std::optional<Request> Take(uint64_t id, const PeerId& from);

  struct Due {
    Request request;
    bool failed = false;  // else: slow
  };
  // The next request that became slow or failed by `now`; call until nullopt.
  std::optional<Due> NextDue(Time now);
  // Requests to a peer whose connection is lost: they will not be answered. In order of sending.
  std::vector<Request> TakeAllTo(const PeerId& peer);
  // The probe of a seed address that cannot be reached.
  std::optional<Request> TakeSeed(const std::string& endpoint);

  size_t pings() const { return pings_; }
  bool Pinging(const PeerId& peer) const;
  Time NextDeadline() const { return due_.empty() ? Time::Infinite() : due_.begin()->first; }
  size_t size() const { return open_.size(); }
  size_t MemoryBytes() const { return sizeof *this + open_.size() * (sizeof(Open) + 128); }

 private:
  enum class Stage : uint8_t { kWaiting, kSlow, kFailed };
  struct Open {
    Request request;
    Stage stage = Stage::kWaiting;
    Time due;
    Time fail_at;
  };
  std::map<uint64_t, Open>::iterator Erase(std::map<uint64_t, Open>::iterator it);
  void Reschedule(uint64_t id, Open& open, Time due);

  const NodeConfig& config_;
  uint64_t next_id_;
  std::map<uint64_t, Open> open_;
  std::set<std::pair<Time, uint64_t>> due_;
  size_t pings_ = 0;
};

}  // namespace crowdsurf::dht
