// DownEvidence: how a host knows that it lost a peer.
//
// The DHT and the worker decide by it: a dead peer is replaced at once, an unreachable one is given
// time.
#pragma once

#include <cstdint>

namespace crowdsurf {

enum class DownEvidence : uint8_t {
  kUnreachable,  // no answer, or the connection was cut: it may live behind a broken network
  kRefused,      // a reconnect was refused, or another peer answers there: that process is dead
  kReplaced,     // its key speaks under a higher boot: it is dead, and what it said is withdrawn
};

inline bool IsDead(DownEvidence evidence) { return evidence != DownEvidence::kUnreachable; }

}  // namespace crowdsurf
