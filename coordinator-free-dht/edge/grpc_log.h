// gRPC's own log: handed on to ours, and read for the one thing that gRPC tells nowhere else.
//
// A connection may fail before its certificate is judged: no TLS, TLS 1.2, no certificate, cut off,
// too slow. No interceptor sees it, and channelz does not. The server only writes a line at level
// debug. We take that line, by the file it comes from and its first words (gRPC 1.51, which
// both supported systems ship; tests/end-to-end/strangers_test.py turns red should they change).
// For the whole process, any thread.
#pragma once

#include <string_view>

#include "base/log.h"
#include "base/metrics.h"

namespace crowdsurf::dht {

// Hands gRPC's lines to `sink` (all as debug: a refused connection is not an event of ours) until
// called with nullptr; after that no thread is in it. Its Write must not call this.
void RouteGrpcLog(LogSink* sink);

// Connections that the gRPC server refused before any call, by why. Declared once, here.
struct RefusedConnections {
  explicit RefusedConnections(MetricRegistry& registry);
  Counter& tls;  // what was said is no handshake of ours: no TLS, old TLS, no certificate
  Counter&
      certificate;   // judged and refused; crowdsurf_peer_certificates_refused_total has them, too
  Counter& cut_off;  // ended by the other side in the middle
  Counter& timed_out;  // said nothing more
  Counter& other;
  // What the gate before gRPC refused or cut (base/edge/connection_gate.h). One that was in its
  // handshake then counts as cut_off, too. The series of a reason is made by its first refusal.
  Counter& For(const char* reason);

 private:
  MetricRegistry& registry_;
};

// Why `line` of gRPC's source `file` says a server's connection was refused: a label of the metric;
// empty when it says nothing of the kind. Pure.
std::string_view RefusalIn(std::string_view file, std::string_view line);

// From now on refused connections are counted here, in place of who asked before: gRPC does not say
// which server of the process it was, and an agent has one. `counters` is valid until Stop...
void CountRefusedConnections(RefusedConnections& counters);
// No more, if `counters` still are the ones; after it they are not touched.
void StopCountingRefusedConnections(const RefusedConnections& counters);

}  // namespace crowdsurf::dht
