// KeptLog: the beginning and the end of what a process prints, on the disk while it runs, so that
// others can read it.
//
// PATH is appended to. When it holds half of kKeptOutput it becomes PATH.1, and a new PATH begins:
// who reads both in this order has the last 32 to 64 KiB (cli/logs/log_reader.h). What is dropped
// first is the beginning: PATH.head has its first kKeptHead bytes then, and a line that says that
// some are missing. After the end both files hold all 64 KiB that the process's owner keeps. A disk
// that is full costs lines here and nothing else. Owner: a LocalPod, which drains the process.
// Blocking, as files of a page cache are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "operator/edge/local/process.h"

namespace crowdsurf::controller {

inline constexpr char kOlderLog[] = ".1";    // added to PATH
inline constexpr char kLogHead[] = ".head";  // the same

class KeptLog {
 public:
  explicit KeptLog(std::string path) : path_(std::move(path)) {}

  // Writes what is new of a process that has printed `printed` bytes, the last of them `kept`, the
  // first `head`.
  void Append(uint64_t printed, std::string_view kept, std::string_view head);
  // It has ended, and Append was called: completes the files. Errors of the disk.
  Status Finish(std::string_view kept, std::string_view head);

 private:
  bool Write(std::string_view text);
  // Some of it may be in no file any more.
  void KeepHead(std::string_view head);

  const std::string path_;
  uint64_t printed_ = 0;  // seen so far
  size_t in_file_ = 0;    // bytes of PATH
  bool rotated_ = false;
  bool headed_ = false;  // PATH.head is there
  bool lost_ = false;    // something is in neither file
};

}  // namespace crowdsurf::controller
