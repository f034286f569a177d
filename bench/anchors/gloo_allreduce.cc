// Anchor of bench/averaging.py: one process of gloo's all-reduce. Needs Debian's libgloo-dev, so
// the bench compiles it by itself.
//
// Usage: bench_gloo RANK SIZE ELEMENTS RENDEZVOUS HOST ring|halving_doubling
// Writes "ready" once it is connected, and for each line "go" the start and the end of one call,
// steady nanoseconds. At a line "rest" it looks at the sums, fills the values anew and writes
// "rested": that is no part of a call, neither of its time nor of its CPU.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace {

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::shared_ptr<gloo::Context> Connect(int rank, int size, const std::string& rendezvous,
                                       const std::string& host) {
  gloo::transport::tcp::attr where;
  where.hostname = host;
  auto device = gloo::transport::tcp::CreateDevice(where);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  gloo::rendezvous::FileStore store(rendezvous);
  context->connectFullMesh(store, device);
  return context;
}

// One call sums `values` over all processes.
std::function<void()> Reduction(const std::shared_ptr<gloo::Context>& context,
                                std::vector<float>& values, bool ring) {
  if (!ring) {
    auto algorithm = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(
        context, std::vector<float*>{values.data()}, static_cast<int>(values.size()));
    return [algorithm] { algorithm->run(); };
  }
  return [context, &values] {
    gloo::AllreduceOptions options(context);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(values.data(), values.size());
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  };
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  std::vector<float> values(std::strtoull(argv[3], nullptr, 10), 1.0F);
  const auto context = Connect(std::atoi(argv[1]), std::atoi(argv[2]), argv[4], argv[5]);
  const auto reduce = Reduction(context, values, std::string(argv[6]) == "ring");
  std::cout << "ready" << std::endl;
  const float sum = std::strtof(argv[2], nullptr);
  bool summed = false;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "rest") {
      const auto wrong = [sum](float value) { return value != sum; };
      if (summed && std::any_of(values.begin(), values.end(), wrong)) return 1;
      if (summed) std::fill(values.begin(), values.end(), 1.0F);  // sums of sums would overflow
      summed = false;
      std::cout << "rested" << std::endl;
      continue;
    }
    const int64_t begin = Now();
    reduce();
    std::cout << begin << " " << Now() << std::endl;
    summed = true;
  }
}
