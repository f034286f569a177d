// A wall clock that is off, in one process of a test. LD_PRELOAD puts it before the C library's.
// CLOCK_SHIFT_WORKER names a worker: its agent's clock is CLOCK_SHIFT_SECONDS ahead. Other
// processes read the true time.
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr long kNanoseconds = 1'000'000'000;  // in a second

std::vector<std::string> CommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

// By how much this process's wall clock is ahead, in nanoseconds.
long ShiftOfThisProcess() {
  const char* worker = std::getenv("CLOCK_SHIFT_WORKER");
  const char* seconds = std::getenv("CLOCK_SHIFT_SECONDS");
  if (worker == nullptr || seconds == nullptr) return 0;
  const std::vector<std::string> words = CommandLine();
  if (words.size() < 2 || words[1] != "agent") return 0;
  const bool mine = std::find(words.begin(), words.end(), std::string_view(worker)) != words.end();
  return mine ? static_cast<long>(std::atof(seconds) * kNanoseconds) : 0;
}

// Asks the kernel: the C library's own function is the one that this file hides.
int Read(clockid_t clock, timespec* now) {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
  static const long shift = ShiftOfThisProcess();
  const long total = now->tv_sec * kNanoseconds + now->tv_nsec + shift;
  now->tv_sec = total / kNanoseconds;
  now->tv_nsec = total % kNanoseconds;
  return 0;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept { return Read(clock, now); }

int gettimeofday(timeval* now, void*) noexcept {
  timespec precise{};
  const int result = Read(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return result;
}

time_t time(time_t* into) noexcept {
  timespec precise{};
  Read(CLOCK_REALTIME, &precise);
  if (into != nullptr) *into = precise.tv_sec;
  return precise.tv_sec;
}

}  // extern "C"
