// Runs: outcomes of training runs by key, kept in a file, so that a bench of hours goes on where it
// was stopped.
//
// A line of the file is one run, written when it ends. Each has the stamp of the program that made
// it, and lines of another program are passed over: nobody compares two builds by accident.
// Owner: one bench; Do runs specs on `threads` threads, each of which must own all that it touches.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace crowdsurf::bench {

using Outcome = std::map<std::string, double>;

struct RunSpec {
  std::string key;  // all that the outcome depends on
  std::function<Outcome()> run;
};

// Of an input that an outcome depends on, for its key: the first of its digest.
std::string BriefOf(const std::string& input);

class Runs {
 public:
  // Reads what `path` has of `stamp`. Unavailable: the file cannot be read or written.
  static StatusOr<Runs> Open(const std::string& path, const std::string& stamp, unsigned threads);

  // Runs what is not there yet, in order.
  void Do(const std::vector<RunSpec>& specs);
  // Pre: it was done.
  const Outcome& of(const std::string& key) const { return done_.at(key); }
  double value(const std::string& key, const std::string& name) const { return of(key).at(name); }
  uint64_t made() const { return made_; }  // by this process

 private:
  Runs(std::string path, std::string stamp, unsigned threads)
      : path_(std::move(path)), stamp_(std::move(stamp)), threads_(threads) {}
  void Keep(const std::string& key, const Outcome& outcome);

  std::string path_;
  std::string stamp_;
  unsigned threads_ = 1;
  std::map<std::string, Outcome> done_;
  uint64_t made_ = 0;
};

}  // namespace crowdsurf::bench
