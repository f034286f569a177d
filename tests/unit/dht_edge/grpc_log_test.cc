// gRPC's log on its way to a sink of ours: gRPC's threads outlive what an agent is made of, and
// write lines until the process ends.
#include "coordinator-free-dht/edge/grpc_log.h"

#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace crowdsurf::dht {
namespace {

// Takes its time over every line.
class SlowSink : public LogSink {
 public:
  void Write(LogLevel, std::string_view, std::string_view,
             std::initializer_list<LogField>) override {
    ++writing;
    ++lines;
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    --writing;
  }
  std::atomic<int> writing{0}, lines{0};
};

TEST(GrpcLogTest, NobodyIsInASinkThatWasTakenAway) {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);  // unset, none is written before gRPC's start
  RouteGrpcLog(nullptr);
  std::atomic<bool> over{false};
  std::thread grpc([&] {
    while (!over) gpr_log(GPR_ERROR, "a line");
  });
  for (int i = 0; i < 20; ++i) {
    SlowSink sink;
    RouteGrpcLog(&sink);
    while (sink.lines == 0) std::this_thread::yield();
    RouteGrpcLog(nullptr);
    EXPECT_EQ(sink.writing, 0);
  }
  over = true;
  grpc.join();
}

}  // namespace
}  // namespace crowdsurf::dht
