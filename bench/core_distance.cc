// How far apart processors are: prints, every SECONDS, the nanoseconds in which a cache line
// travels from the first processor of this process to the others that share its last cache, and
// back. That is the largest of them; 0 where nobody shares it.
//
// Usage: bench_core_distance SECONDS. It ends with its reader. As root it takes the processors from
// other programs, for a tenth of a millisecond each.
//
// A hypervisor may move its virtual processors: what the kernel believes to share a cache does then
// not, and a line takes six times as long (bench/cores.py).
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kTrips = 300;
constexpr int kRounds = 2;         // the least counts: a thread may have to wait for its processor
constexpr size_t kProcessors = 8;  // looked at: each takes a tenth of a millisecond

struct alignas(128) Line {  // with the neighbour that a processor fetches, too
  std::atomic<int> value{0};
};

// "0-3,8": the kernel's form of a list.
std::vector<int> ParseList(const std::string& text) {
  std::vector<int> found;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const int first = std::stoi(part);
    const int last = dash == std::string::npos ? first : std::stoi(part.substr(dash + 1));
    for (int processor = first; processor <= last; ++processor) found.push_back(processor);
  }
  return found;
}

std::vector<int> Allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {};
  std::vector<int> found;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(processor, &set)) found.push_back(processor);
  }
  return found;
}

// Of `allowed`, those that share the last cache of the first, which comes first.
std::vector<int> Sharing(const std::vector<int>& allowed) {
  if (allowed.empty()) return {};
  const std::string cache =
      "/sys/devices/system/cpu/cpu" + std::to_string(allowed.front()) + "/cache/index3/";
  std::ifstream file(cache + "shared_cpu_list");
  std::string text;
  if (!std::getline(file, text)) return {};
  std::vector<int> sharing;
  for (const int processor : ParseList(text)) {
    if (std::find(allowed.begin(), allowed.end(), processor) != allowed.end()) {
      sharing.push_back(processor);
    }
  }
  sharing.resize(std::min(sharing.size(), kProcessors));
  return sharing;
}

void Pin(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

// Waits until the line has this value. Both threads may have to share a processor for a while.
void Await(const Line& line, int value) {
  for (int looks = 1; line.value.load(std::memory_order_acquire) != value; ++looks) {
    if (looks % 20'000 == 0) std::this_thread::yield();
  }
}

double Nanoseconds(int one, int other) {
  Line line;
  std::thread answers([&line, other] {
    Pin(other);
    for (int trip = 0; trip < kTrips; ++trip) {
      Await(line, 2 * trip + 1);
      line.value.store(2 * trip + 2, std::memory_order_release);
    }
  });
  Pin(one);
  const auto ask = [&line](int trip) {
    line.value.store(2 * trip + 1, std::memory_order_release);
    Await(line, 2 * trip + 2);
  };
  ask(0);  // the other thread has started
  const auto began = std::chrono::steady_clock::now();
  for (int trip = 1; trip < kTrips; ++trip) ask(trip);
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
  answers.join();
  return took.count() / (kTrips - 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::chrono::duration<double> pause(std::strtod(argv[1], nullptr));
  const sched_param first{.sched_priority = 1};
  sched_setscheduler(0, SCHED_FIFO, &first);  // refused to others than root
  const std::vector<int> sharing = Sharing(Allowed());
  while (std::cout) {
    double largest = 0;
    for (size_t i = 1; i < sharing.size(); ++i) {
      double least = Nanoseconds(sharing.front(), sharing[i]);
      for (int round = 1; round < kRounds; ++round) {
        least = std::min(least, Nanoseconds(sharing.front(), sharing[i]));
      }
      largest = std::max(largest, least);
    }
    std::cout << largest << std::endl;
    std::this_thread::sleep_for(pause);
  }
}
