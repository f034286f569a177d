// LogReader: reads the log that a local run keeps of a process (operator/edge/local/kept_log.h),
// while it grows and begins anew.
//
// PATH.head is the beginning of a long one, PATH.1 the older part of its end, PATH the newer. No
// file is held open between two reads, so the number of logs that are followed is not bounded by
// descriptors. A read returns at most what the files hold, 80 KiB. Single thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace crowdsurf::cli {

class LogReader {
 public:
  explicit LogReader(std::string path) : path_(std::move(path)) {}

  // What was printed since the last read; the first time all that is kept. Empty: nothing, or there
  // is no log yet. More may have been printed between two reads than is kept: then the older part
  // of that is missing. Errors: the file is there and cannot be read.
  StatusOr<std::string> Read();

 private:
  const std::string path_;
  ino_t file_ = 0;  // PATH at the last read; 0: there was none
  off_t read_ = 0;  // bytes of it
};

}  // namespace crowdsurf::cli
