// KeptLog: the end of what a process prints, on the disk while it runs, so that others can read it.
//
// PATH is appended to. When it holds half of kKeptOutput it becomes PATH.1, and a new PATH begins:
// who reads both in this order has the last 32 to 64 KiB (cli/logs/log_reader.h). After the end
// they hold all 64 KiB that the process's owner keeps. A disk that is full costs lines here and
// nothing else. Owner: a LocalPod, which drains the process. Blocking, as files of a page cache
// are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "operator/edge/local/process.h"

namespace crowdsurf::controller {

inline constexpr char kOlderLog[] = ".1";  // added to PATH

class KeptLog {
 public:
  explicit KeptLog(std::string path) : path_(std::move(path)) {}

  // Writes what is new of a process that has printed `printed` bytes, the last of them `kept`.
  void Append(uint64_t printed, std::string_view kept);
  // It has ended, and Append was called: completes the files. Errors of the disk.
  Status Finish(std::string_view kept);

 private:
  bool Write(std::string_view text);

  const std::string path_;
  uint64_t printed_ = 0;  // seen so far
  size_t in_file_ = 0;    // bytes of PATH
  bool rotated_ = false;
  bool lost_ = false;  // something is in neither file
};

}  // namespace crowdsurf::controller
