#include "simulator/engine/node_config.h"

#include <absl/strings/str_cat.h>

#include "base/digest.h"

namespace crowdsurf::simulator {
namespace {

constexpr int64_t kUnixEpochOfRun = 1'700'000'000'000;  // ms: a wall clock for records, any will do

}  // namespace

worker::PeerConfig NodeConfig(const std::string& job, int node, uint64_t seed, Duration start) {
  worker::PeerConfig config;
  config.job = job;
  config.worker = absl::StrCat("worker-", node);
  // Ids depend on the seed, so that orders by id differ between runs.
  config.id = PeerId(Sha256(AsBytes(absl::StrCat("peer ", node, " of ", seed))).bytes());
  config.peer_endpoint = absl::StrCat("node-", node, ":7946");
  config.tensor_endpoint = absl::StrCat("node-", node, ":7947");
  config.http_endpoint = absl::StrCat("node-", node, ":7948");
  config.started_unix_ms = kUnixEpochOfRun + start.nanoseconds() / 1'000'000;
  return config;
}

}  // namespace crowdsurf::simulator
