// LogsOptions: what `crowdsurf logs` was asked for.
//
// Plain values, as the flags say them; the names are kubectl's. Any thread.
#pragma once

#include <optional>
#include <string>

#include "cli/run/worker_name.h"

namespace crowdsurf::cli {

enum class LogOf : uint8_t { kTrainer, kAgent };
enum class Follow : uint8_t { kNo, kYes };

struct LogsOptions {
  std::string job;
  std::string worker;  // name or index; empty: the newest of each index
  LogOf of = LogOf::kTrainer;
  Follow follow = Follow::kNo;
  Which which = Which::kNewest;
  int tail = -1;  // lines of each log at first; negative: all
};

}  // namespace crowdsurf::cli
