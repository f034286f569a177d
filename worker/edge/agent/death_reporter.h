// DeathReporter: tells the operator which workers this agent has lost, POST /v1/deaths.
//
// One thread that mostly waits. Contract: the signer's port (docs/kubernetes.md), body {"dead":
// [names of workers]}, header Authorization: Bearer TOKEN, the server verified against ca.pem; the
// token says who reports, and of which job. Answers: 202 taken; 421 another replica leads: asked
// again at once on another connection, because the Service picks one each time; 404 nobody takes
// reports there (local mode, an older operator): never asked again; all else is a failure. After
// failures it is silent for a back-off of 1 to 10 s: who is still lost is named again anyhow
// (loss_report_schedule.h). Bound: one report waits, the newest. An operator that is away harms
// nobody. Thread-safe.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/backoff.h"
#include "base/edge/http_client.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/rng.h"

namespace crowdsurf::worker {

struct DeathReporterOptions {
  std::string url;                  // https://host:port
  std::filesystem::path agent_dir;  // token and ca.pem, read for every report: tokens rotate
  Duration timeout = Seconds(3);    // of one request
  Backoff backoff{Seconds(1), Seconds(10)};
};

struct DeathReporterMetrics {
  explicit DeathReporterMetrics(MetricRegistry& r) : registry(r) {}

  MetricRegistry& registry;
  Counter& taken = Reports("taken");
  Counter& refused = Reports("refused");
  Counter& unreachable = Reports("unreachable");
  // Replaced by a newer one, or within a back-off.
  Counter& held_back = Reports("held_back");

 private:
  Counter& Reports(const char* result) {
    return registry.AddCounter("crowdsurf_worker_death_reports_total",
                               "Reports of lost workers to the operator, by result.",
                               {{"result", result}});
  }
};

class DeathReporter {
 public:
  DeathReporter(DeathReporterOptions options, uint64_t seed, MetricRegistry& metrics, Logger log);
  ~DeathReporter();  // cuts a request that is under way

  // Sends soon, or not at all; the caller names them again.
  void Report(std::vector<std::string> dead);

 private:
  enum class Answer { kTaken, kRefused, kUnreachable, kNobodyListens };
  void Run();
  Answer Send(const std::vector<std::string>& dead);
  int Ask(const std::string& token, const std::string& body);  // HTTP status; 0: no answer

  const DeathReporterOptions options_;
  const Logger log_;
  DeathReporterMetrics metrics_;
  Rng rng_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::string> waiting_;
  bool stopping_ = false;
  HttpClient client_;
  std::thread thread_;
};

}  // namespace crowdsurf::worker
