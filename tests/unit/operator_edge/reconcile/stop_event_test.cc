// A wait that another thread ends, or a signal handler of its own.
#include "operator/edge/reconcile/stop_event.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>

namespace crowdsurf::controller {
namespace {

TEST(StopEventTest, AWaitEndsByItsTimeOrBySet) {
  StopEvent event;
  EXPECT_FALSE(event.IsSet());
  EXPECT_FALSE(event.WaitFor(Milliseconds(2)));
  std::thread setter([&] { event.Set(); });
  EXPECT_TRUE(event.WaitFor(Seconds(60)));
  setter.join();
  EXPECT_TRUE(event.IsSet()) << "it stays set";
  EXPECT_TRUE(event.WaitFor(Seconds(60)));
}

StopEvent* of_handler = nullptr;

TEST(StopEventTest, ASignalHandlerMaySetItWhileItsOwnThreadWaits) {
  StopEvent event;
  of_handler = &event;
  const auto before = signal(SIGUSR1, [](int) { of_handler->Set(); });
  const pthread_t waiting = pthread_self();
  std::thread sender([&] { pthread_kill(waiting, SIGUSR1); });
  EXPECT_TRUE(event.WaitFor(Seconds(60)));
  sender.join();
  signal(SIGUSR1, before);
}

}  // namespace
}  // namespace crowdsurf::controller
