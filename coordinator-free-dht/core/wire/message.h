// Message: what two DHT nodes say to each other, as plain structs.
//
// Three requests with a reply (find, store, watch) and one push without. `id` pairs a reply with
// its request and is chosen by the requester. The sender is not in the message: the transport
// authenticates it and hands its Contact along. Bounds are the codec's (codec.h). Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/time.h"
#include "coordinator-free-dht/core/wire/key.h"
#include "coordinator-free-dht/core/wire/record.h"

namespace crowdsurf::dht {

// Where a peer is. `id` is none only for a seed that is known by address alone.
struct Contact {
  PeerId id;
  std::string endpoint;  // host:port of its gRPC server

  bool operator==(const Contact&) const = default;
};

// "Which peers do you know near `target`" (also the ping: any reply proves life), and with `values`
// "what do you hold there": Kademlia's PING, FIND_NODE and FIND_VALUE in one.
struct FindRequest {
  Key target;
  bool values = false;
};
struct FindReply {
  std::vector<Contact> contacts;   // at most k, closest first
  std::vector<RecordPtr> records;  // of `target`, by subkey
};

struct StoreRequest {
  std::vector<RecordPtr> records;
};
struct StoreReply {
  uint16_t stored = 0;   // records that the receiver now holds (new, or had already)
  uint16_t refused = 0;  // stale, expired, forged, or over a quota: changed nothing
};

// What a watcher has already: the holder sends only what is newer.
struct Have {
  PeerId subkey;
  uint64_t sequence = 0;
};
// "Push me changes of `key` for the next `life`"; life zero ends it.
struct WatchRequest {
  Key key;
  Duration life;
  std::vector<Have> have;
};
struct WatchReply {
  bool accepted = false;           // false: too many subscriptions; the watcher asks somebody else
  std::vector<RecordPtr> records;  // newer than `have`
};
// To every watcher of `records`' key when they change. No reply.
struct WatchPush {
  std::vector<RecordPtr> records;
};

// What the sender of a reply reads on its wall clock, uncorrected, and the key and boot counter
// that its id is made of: it counts once, whatever id it takes.
struct ClockReading {
  WallTime wall;
  PublicKey public_key{};
  uint64_t boot = 0;
};

struct Message {
  uint64_t id = 0;  // of the request; 0 for a push
  std::variant<FindRequest, FindReply, StoreRequest, StoreReply, WatchRequest, WatchReply,
               WatchPush>
      body;
  ClockReading clock = {};  // of a reply
};

inline bool IsReply(const Message& message) {
  return std::holds_alternative<FindReply>(message.body) ||
         std::holds_alternative<StoreReply>(message.body) ||
         std::holds_alternative<WatchReply>(message.body);
}

}  // namespace crowdsurf::dht
