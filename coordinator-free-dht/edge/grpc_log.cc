#include "coordinator-free-dht/edge/grpc_log.h"

#include <grpc/support/log.h>

#include <mutex>
#include <shared_mutex>

namespace crowdsurf::dht {
namespace {

// gRPC logs from its own threads for as long as the process lives, and the sink may go before.
std::shared_mutex sink_mutex;  // shared by who writes a line
LogSink* grpc_sink = nullptr;  // guarded by sink_mutex
std::mutex refused_mutex;
RefusedConnections* refused = nullptr;  // guarded by refused_mutex

Counter& RefusedFor(MetricRegistry& registry, const char* reason) {
  return registry.AddCounter("crowdsurf_peer_connections_refused_total",
                             "Connections refused before any call, by reason.",
                             {{"reason", reason}});
}

bool Contains(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

void Count(std::string_view reason) {
  if (reason.empty()) return;
  const std::lock_guard lock(refused_mutex);
  // The transport has stopped; connections that gRPC still refuses are nobody's.
  if (refused == nullptr) return;
  Counter& counter = reason == "tls"           ? refused->tls
                     : reason == "certificate" ? refused->certificate
                     : reason == "cut_off"     ? refused->cut_off
                     : reason == "timed_out"   ? refused->timed_out
                                               : refused->other;
  counter.Add();
}

void OnGrpcLog(gpr_log_func_args* args) {
  Count(RefusalIn(args->file, args->message));
  const std::shared_lock lock(sink_mutex);
  if (grpc_sink == nullptr) return;
  grpc_sink->Write(LogLevel::kDebug, "grpc", "message", {{"text", args->message}});
}

}  // namespace

RefusedConnections::RefusedConnections(MetricRegistry& registry)
    : tls(RefusedFor(registry, "tls")),
      certificate(RefusedFor(registry, "certificate")),
      cut_off(RefusedFor(registry, "cut_off")),
      timed_out(RefusedFor(registry, "timed_out")),
      other(RefusedFor(registry, "other")),
      registry_(registry) {}

Counter& RefusedConnections::For(const char* reason) { return RefusedFor(registry_, reason); }

void RouteGrpcLog(LogSink* sink) {
  {
    const std::lock_guard lock(sink_mutex);
    grpc_sink = sink;
  }
  gpr_set_log_function(OnGrpcLog);
}

std::string_view RefusalIn(std::string_view file, std::string_view line) {
  // A dialed connection fails with other words of other files, which dials count themselves.
  if (!file.ends_with("chttp2_server.cc") || !line.starts_with("Handshaking failed")) return {};
  if (Contains(line, "SSL_ERROR_SSL")) return "tls";
  // Both spellings, of gRPC and of OpenSSL, whose first letter differs.
  if (Contains(line, "erification")) return "certificate";
  if (Contains(line, "timed out")) return "timed_out";
  if (Contains(line, "Handshake read failed") || Contains(line, "Handshake write failed")) {
    return "cut_off";
  }
  return "other";
}

void CountRefusedConnections(RefusedConnections& counters) {
  {
    const std::lock_guard lock(refused_mutex);
    refused = &counters;
  }
  gpr_set_log_function(OnGrpcLog);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_DEBUG);  // a few lines a connection, none a message
}

void StopCountingRefusedConnections(const RefusedConnections& counters) {
  const std::lock_guard lock(refused_mutex);
  // Another transport of the process may have begun to count since; tests have two.
  if (refused == &counters) refused = nullptr;
}

}  // namespace crowdsurf::dht
