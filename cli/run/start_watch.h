// StartWatch: says why workers do not train, and ends a start that comes to nothing.
//
// Between its creation and its first step a worker has a cause: its agent is not up, or waits for
// something. One that lasts is said once, in the operator's words. Single thread; bounded by
// the workers there are. Pure: (now, workers) in, sentences out.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace crowdsurf::cli {

// A worker that has made no step yet and is not told to leave.
struct StartingWorker {
  std::string name;
  bool agent_up = false;
  std::string wait = {};       // the name of its cause (operator/core/job/start_cause.h)
  double waiting_seconds = 0;  // for that
};

class StartWatch {
 public:
  static constexpr Duration kSayAfter = Seconds(30);  // of one cause; many starts take 10 s
  // Beyond --duration: a model that is loaded over a slow line, or compiled. Then nothing comes.
  static constexpr Duration kPatience = Seconds(300);

  // duration: of the training, as the user wants it; absent: the start may take for ever.
  explicit StartWatch(std::optional<Duration> duration) : duration_(duration) {}

  // `at` in seconds of any clock. One sentence a cause, naming the workers that have it.
  std::vector<std::string> Look(double at, const std::vector<StartingWorker>& workers);

  // No worker has made a step since `launched` for so long that none is waited for any more.
  bool Over(double at, double launched) const {
    return duration_ && Seconds(at - launched) >= *duration_ + kPatience;
  }
  // The cause of most workers, in words; empty: none was starting.
  const std::string& why() const { return why_; }

 private:
  struct Known {
    double since = 0;  // it has been there
    std::string said;  // the cause that was said last
  };

  const std::optional<Duration> duration_;
  std::map<std::string, Known> workers_;
  std::string why_;
};

}  // namespace crowdsurf::cli
