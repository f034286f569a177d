// SealedStore: the checkpoints that one agent of a job writes, with a certificate of its own.
//
// Owner: one test. The folder is shared with others of the same test.
#pragma once

#include <memory>
#include <string>

#include "base/metrics.h"
#include "tests/unit/dht_edge/test_authority.h"
#include "worker/edge/state/checkpoint.h"

namespace crowdsurf::worker {

class SealedStore {
 public:
  // `seconds`: as of TestAuthority::Leaf; negative: its certificate has ended.
  SealedStore(const std::string& folder, const dht::TestAuthority& authority,
              const std::string& job = "charlm", long seconds = 600)
      : identity_(Equipped(authority, job, seconds)),
        store(folder, job + "-w", 2, Logger(), metrics, CheckpointSeals(*identity_, job)) {}

 private:
  std::unique_ptr<dht::Identity> Equipped(const dht::TestAuthority& authority,
                                          const std::string& job, long seconds) {
    authority.Equip(
        directory_.path(),
        {.seconds = seconds, .names = "DNS:peer.crowdsurf,URI:crowdsurf://" + job + "/w"});
    return *dht::Identity::Open(directory_.path());
  }

  dht::TemporaryDirectory directory_;
  std::unique_ptr<dht::Identity> identity_;

 public:
  MetricRegistry metrics;
  CheckpointStore store;
};

}  // namespace crowdsurf::worker
