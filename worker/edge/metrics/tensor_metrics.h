// Tensor metrics: what the tensor plane counts, one row a metric.
//
// Made once by TensorTransport from the agent's registry. Handles are shared and thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/metrics.h"
#include "worker/core/link/tensor_tokens.h"

namespace crowdsurf::worker {

struct TensorMetrics {
  explicit TensorMetrics(MetricRegistry& r) : registry(r) {
    for (const char* how :
         {"refused", "wrong_peer", "failed", "lost", "garbage", "goodbye", "too_many"}) {
      ended[how] = &registry.AddCounter("crowdsurf_tensor_connections_ended_total",
                                        "Tensor connections that ended, by how.", {{"how", how}});
    }
  }
  // Where tensors travel in the clear. Most agents encrypt, and a worker has at most 250 series:
  // there one is made when it first counts (peers' modes differ).
  void DeclareTokens() {
    (void)Tokens("given");
    for (const std::string_view refusal : kTokenRefusals) (void)Tokens(refusal);
  }

  MetricRegistry& registry;
  Counter& sent_bytes = registry.AddCounter("crowdsurf_tensor_sent_bytes_total",
                                            "Bytes written to tensor connections, before TLS.");
  Counter& received_bytes = registry.AddCounter("crowdsurf_tensor_received_bytes_total",
                                                "Payload bytes of sound tensor frames received.");
  Counter& opened = registry.AddCounter("crowdsurf_tensor_connections_opened_total",
                                        "Tensor connections that were opened, both directions.");
  Gauge& connections = registry.AddGauge("crowdsurf_tensor_connections",
                                         "Tensor connections that are open, both directions.");
  Counter& accept_failures =
      registry.AddCounter("crowdsurf_tensor_accept_failures_total",
                          "Connections not accepted for want of descriptors.");
  Counter& full = registry.AddCounter("crowdsurf_tensor_queue_full_total",
                                      "Frames that had to wait because a peer's queue was full.");
  Counter& dropped = registry.AddCounter("crowdsurf_tensor_frames_dropped_total",
                                         "Frames dropped: the peer is gone or the host is behind.");
  Counter& paused =
      registry.AddCounter("crowdsurf_tensor_reads_paused_total",
                          "Times a connection was not read because the host is behind.");
  std::map<std::string, Counter*> ended;  // TensorEndingName, and "too_many"

  Counter& Tokens(std::string_view result) {
    return registry.AddCounter("crowdsurf_tensor_tokens_total",
                               "Tokens for tensor connections in the clear: given, or why not, or "
                               "why a connection was refused.",
                               {{"result", std::string(result)}});
  }
};

}  // namespace crowdsurf::worker
