// StatusServer: the status page and /metrics of a run, on a port of the loopback.
//
// The run's one thread gives it a new page twice a second; threads of the server hand out the
// latest. /metrics is the registry of the run: the operator's own series (reconciler, queue,
// signer), those of local mode, and the process's. The registry must not be added to while it is
// served. Nothing secret is on it, and nothing can be changed through it. Bounds: HttpServer's.
#pragma once

#include <memory>
#include <string>

#include "base/metrics.h"
#include "base/status.h"

namespace crowdsurf::cli {

class StatusServer {
 public:
  // port 0: any free one. Error: FailedPrecondition naming --http-port when it cannot be had.
  static StatusOr<std::unique_ptr<StatusServer>> Start(int port, MetricRegistry& metrics);
  ~StatusServer();  // stops

  void Show(std::string page);
  int port() const;
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port()) + "/"; }

 private:
  StatusServer(int port, MetricRegistry& metrics);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace crowdsurf::cli
