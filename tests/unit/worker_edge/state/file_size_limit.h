// FileSizeLimit: while it lives, no file of this process can grow beyond so many bytes.
//
// Stands for a full disk in tests: a write fails with EFBIG where a full disk gives ENOSPC, and
// both are no space to the code under test. Needs no privilege. Not for tests that run threads
// which write files of their own.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>

namespace crowdsurf::worker {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &before_) != 0) abort();
    const rlimit now{bytes, before_.rlim_max};
    if (setrlimit(RLIMIT_FSIZE, &now) != 0) abort();
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace crowdsurf::worker
