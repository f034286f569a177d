// JobRecord: everything that KubeCluster remembers of a job besides the objects of its caches.
//
// It is born when the caches first show the job's uid and dies when they show it no more, so a job
// that is deleted and made again under its name begins with nothing. Host thread. Bounds: kMaxRates
// rates, kMaxWaits waits, the workers that are deleted within kRemembered (kube_deaths.cc). Source:
// docs/kubernetes.md.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "operator/core/job/training_job.h"

namespace crowdsurf::controller {

struct JobRecord {
  struct DeletedOnWord {  // a worker, on the word of its peers
    WallTime at;
    std::string node;
  };
  struct Told {         // by its agents
    Progress progress;  // its rate: the median of the rates since the one before
    std::optional<WallTime> taken;
    std::vector<double> rates;  // told since then
  };
  struct Explained {  // what the events of its first late worker said
    std::string uid, message;
    WallTime asked;
    int times = 0;  // that they were asked for
  };
  struct Purse {  // of its events
    double tokens = 0;
    WallTime at;
  };

  struct Heard {                               // of its agents
    std::optional<Progress> words;             // left behind, also by those that are gone
    std::map<std::string, std::string> waits;  // by worker: what it does not train for
  };

  // Workers that the API server says are gone: of each index the one that was seen or asked last.
  struct Gone {
    std::map<int, int> incarnations;  // by index
    bool under_way = false;           // the last question; else, if it was asked, it failed
    WallTime asked;                   // unset: nothing waits for an answer
  };

  Told told;
  Gone gone;
  Heard heard;
  std::optional<Purse> purse;  // none: no event was written yet
  Explained explained;
  std::vector<DeletedOnWord> deleted_on_word;
};

}  // namespace crowdsurf::controller
