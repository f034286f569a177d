// OrderWatch: do two workers of a job train on the same batches in the same order?
//
// Then both do the work of one. An agent tells a hash of the first batches that its trainer drew;
// equal hashes of two workers are said once a job, because the cause is the script's, and each
// worker runs the same script. A worker and the one that replaces it are not compared. Owner: who
// polls the agents; single sequence. Bound: kMostWorkers.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

namespace crowdsurf::controller {

class OrderWatch {
 public:
  static constexpr size_t kMostWorkers = 4096;  // that say something; more of them say no more

  // index: of the worker's pod. order: empty, it is not known. What there is to say of the worker,
  // the first time; nullopt: nothing.
  std::optional<std::string> See(const std::string& worker, int index, const std::string& order);
  // Others have gone.
  void Retain(const std::set<std::string>& workers);

 private:
  struct Said {
    int index = 0;
    std::string order;
  };
  std::map<std::string, Said> said_;
  bool warned_ = false;
};

}  // namespace crowdsurf::controller
