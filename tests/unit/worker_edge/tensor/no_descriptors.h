// No descriptors: while it lives, this process can open none.
//
// Used by tests of servers. The limit is the process', so nothing else may open files meanwhile.
// Descriptors below it that are free are taken. Threads that earlier tests have left to end may
// close some later: TakeFree takes those, too.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

namespace crowdsurf::worker {

class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int highest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(highest) + 1;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    taken_.push_back(highest);
    TakeFree();
  }
  ~NoDescriptors() {
    for (const int fd : taken_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  void TakeFree() {
    for (int fd = 0; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken_.push_back(fd);
  }

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

}  // namespace crowdsurf::worker
