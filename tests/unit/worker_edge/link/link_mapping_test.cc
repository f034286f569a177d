// The link's file in memory: where it lies, and on which pages.
#include "worker/edge/link/link_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "tests/unit/worker_edge/link/link_fixture.h"
#include "worker/edge/link/owned_fd.h"

namespace crowdsurf::worker {
namespace {

constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
constexpr uint64_t kElements = uint64_t{4} << 20;  // 16 MiB

// Bytes that `address`' mapping has on huge pages, as the kernel tells this process.
uint64_t HugeBytesAt(uintptr_t address) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2)
      here = begin <= address && address < end;
    if (here && std::sscanf(line.c_str(), "ShmemPmdMapped: %zu kB", &kib) == 1) return kib << 10;
  }
  return 0;
}

// Whether this kernel gives a file of `dir` a huge page that is asked for.
bool KernelGivesHugePages(const std::string& dir) {
  const std::string path = dir + "/probe";
  const OwnedFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid() || ::ftruncate(file.get(), kHugePage) != 0 ||
      ::posix_fallocate(file.get(), 0, 1) != 0)
    return false;
  void* place = ::mmap(nullptr, 2 * kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const uintptr_t over = reinterpret_cast<uintptr_t>(place) % kHugePage;
  void* base = ::mmap(static_cast<uint8_t*>(place) + (kHugePage - over), kHugePage,
                      PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0);
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, Linux 6.1
  const bool given = base != MAP_FAILED && ::madvise(base, kHugePage, kCollapse) == 0;
  ::munmap(place, 2 * kHugePage);
  ::unlink(path.c_str());
  return given;
}

using Mapping = LinkFixture;

TEST_F(Mapping, BothSidesMapTheFileWhereAHugePageCanBegin) {
  StartServer();
  ASSERT_TRUE(Connect()->Register(Model(kElements)).ok());
  for (int i = 0; i < 5; ++i) {
    const auto link = LinkMapping::Open(dir_ + "/tensors");
    ASSERT_TRUE(link.ok()) << link.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(&link->control()) % kHugePage, 0u);
    link->outbox()[kElements - 1] = 3;
    EXPECT_EQ(server_->outbox()[kElements - 1], 3) << "it is the same memory to its last value";
  }
}

TEST_F(Mapping, ValuesLieOnHugePagesWhereTheKernelGivesThem) {
  if (!KernelGivesHugePages(dir_)) GTEST_SKIP() << "this kernel gives no huge pages to " << dir_;
  StartServer();
  ASSERT_TRUE(Connect()->Register(Model(kElements)).ok());
  const uint64_t of_three = 3 * sizeof(float) * kElements;
  EXPECT_GE(HugeBytesAt(reinterpret_cast<uintptr_t>(server_->outbox().data())),
            of_three - kHugePage);
}

// An agent that starts again finds the file, and touches its values one after the other.
TEST_F(Mapping, AMappingOfAnOldFileHasItsHugePages) {
  if (!KernelGivesHugePages(dir_)) GTEST_SKIP() << "this kernel gives no huge pages to " << dir_;
  StartServer();
  ASSERT_TRUE(Connect()->Register(Model(kElements)).ok());
  const auto link = LinkMapping::Open(dir_ + "/tensors");
  ASSERT_TRUE(link.ok()) << link.status();
  for (float& value : link->outbox()) value = 1;
  EXPECT_GE(HugeBytesAt(reinterpret_cast<uintptr_t>(link->outbox().data())),
            sizeof(float) * kElements - 2 * kHugePage);
}

}  // namespace
}  // namespace crowdsurf::worker
