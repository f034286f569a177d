// Actions: what dht::Node wants done, as data that its host executes in order.
//
// The production host sends through edge/transport and calls back the worker; the simulator delays,
// drops and delivers; tests look. Nothing here refers to the node: the host may keep actions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "coordinator-free-dht/core/wire/message.h"

namespace crowdsurf::dht {

// Deliver `message` to `to`. When to.id is none (a seed), by address alone.
struct Send {
  Contact to;
  Message message;
};

// A Get is over: the newest unexpired record of every subkey that was found, by subkey. Always
// comes, exactly once; empty when nobody had anything or the node was overloaded.
struct GetDone {
  uint64_t get = 0;
  Key key;
  std::vector<RecordPtr> records;
};

// The end of Node::Put: published, or why not.
enum class PutResult : uint8_t {
  kPublished,
  kTooLarge,  // above NodeConfig::value_bytes
  kExpired,   // the expiry is not ahead
  kTooFar,    // the expiry is beyond NodeConfig::longest_life
  kTooMany,   // there are NodeConfig::own_records of other keys
};
constexpr size_t kPutResults = 5;
const char* Name(PutResult result);  // as the metric says it

// The first round of a Put is over: `stored` holders, this node included, have the record.
struct PutDone {
  Key key;
  uint64_t sequence = 0;
  int stored = 0;
  int failed = 0;  // refused, or did not answer twice
};

// News of a watched key: records that are new or newer than all reported before, by subkey. Expiry
// is not reported: a reader looks at Record::expiry. `synced` is false until the nearest holders
// were found and every one asked has answered or is gone; then it stays true. A synced update with
// no record means: nobody has one. An update without news is sent only to say synced.
struct WatchUpdate {
  Key key;
  std::vector<RecordPtr> records;
  bool synced = false;
};

using Action = std::variant<Send, GetDone, PutDone, WatchUpdate>;
using Actions = std::vector<Action>;

}  // namespace crowdsurf::dht
