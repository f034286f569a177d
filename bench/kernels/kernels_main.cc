// Prints how fast the kernels are beside intrinsics written by hand, and checks both.
//
// Usage: bench_kernels [PAIRS]. Prints a JSON object: of each kernel the shares of the hand's speed
// in PAIRS pairs of spans, each of some milliseconds of this thread's CPU time, kernel and hand in
// turns. First both are held to a scalar oracle; a difference ends the program with 1. Without
// AVX-512 it prints an empty object.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/kernels/hand.h"
#include "bench/kernels/pairs.h"

namespace crowdsurf::bench {
namespace {

constexpr int64_t kSpanNs = 2'000'000;

void Demand(bool right, const std::string& name, const char* what) {
  if (right) return;
  std::fprintf(stderr, "bench kernels: %s: %s\n", name.c_str(), what);
  std::exit(1);
}

bool SameBits(const Floats& a, const Floats& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

void Check(const Pair& pair) {
  const auto check = [&](const std::function<void(Side&)>& run, const char* who) {
    Side side;
    side.bytes.resize(pair.want_bytes.size());
    run(side);
    Demand(pair.want_bytes.empty() || side.bytes == pair.want_bytes, pair.name, who);
    Demand(pair.want_values.empty() || SameBits(side.values, pair.want_values), pair.name, who);
    Demand(!pair.want_values.empty() || !pair.want_bytes.empty() || side.finite, pair.name, who);
  };
  check(pair.kernel, "the kernel is wrong");
  check(pair.hand, "the hand is wrong");
}

int64_t CpuNs() {
  timespec now{};
  CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

double Span(const std::function<void(Side&)>& run, Side& side, int64_t times) {
  const int64_t begin = CpuNs();
  for (int64_t i = 0; i < times; ++i) run(side);
  return static_cast<double>(CpuNs() - begin);
}

std::vector<double> Shares(const Pair& pair, int pairs) {
  Side kernel, hand;
  kernel.bytes.resize(pair.want_bytes.size());
  hand.bytes = kernel.bytes;
  int64_t times = 1;
  while (Span(pair.hand, hand, times) < static_cast<double>(kSpanNs)) times *= 2;
  std::vector<double> shares;
  for (int i = 0; i < pairs; ++i) {
    const bool first = i % 2 == 0;
    const double before = first ? Span(pair.hand, hand, times) : 0;
    const double ours = Span(pair.kernel, kernel, times);
    const double theirs = first ? before : Span(pair.hand, hand, times);
    shares.push_back(theirs / ours);
  }
  return shares;
}

int Main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 50;
  if (argc > 2 || pairs < 1) {
    std::fprintf(stderr, "usage: bench_kernels [PAIRS]\n");
    return 2;
  }
  nlohmann::json told = nlohmann::json::object();
  if (hand::Works()) {
    const Inputs inputs;
    Demand(RefusesInfinity(inputs), "finite", "infinity is taken for a number");
    Demand(DitherIsSmall(inputs), "to_int8_dithered", "the kernel is wrong by a step");
    for (const Pair& pair : Pairs(inputs)) {
      Check(pair);
      told[pair.name] = Shares(pair, pairs);
    }
  }
  std::printf("%s\n", told.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace crowdsurf::bench

int main(int argc, char** argv) { return crowdsurf::bench::Main(argc, argv); }
