// Figures: what a bench has to say, by the names of the issue: flat keys and numbers.
//
// Printed as they come, with an anchor to read them by. Owner: one bench; single sequence.
#pragma once

#include <cstdio>
#include <map>
#include <string>

namespace crowdsurf::bench {

struct Figures {
  std::map<std::string, double> values;
  bool quiet = false;

  void Add(const std::string& key, double value, const std::string& anchor) {
    values[key] = value;
    if (quiet) return;
    std::printf("%-52s %12.6g   %s\n", key.c_str(), value, anchor.c_str());
    std::fflush(stdout);
  }
};

}  // namespace crowdsurf::bench
