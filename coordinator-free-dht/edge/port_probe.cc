#include "coordinator-free-dht/edge/port_probe.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>

namespace crowdsurf::dht {
namespace {

constexpr Duration kLook = Milliseconds(100);  // at most, until Stop is noticed in a probe

std::chrono::nanoseconds Chrono(Duration d) { return std::chrono::nanoseconds(d.nanoseconds()); }

}  // namespace

void PortProbe::Start() {
  thread_ = std::thread([this] { Run(); });
}

void PortProbe::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool PortProbe::Sleep(Duration time) {
  std::unique_lock lock(mutex_);
  return !stop_.wait_for(lock, Chrono(time), [this] { return stopped_; });
}

void PortProbe::Run() {
  PortHealth health;
  while (Sleep(options_.period)) {
    const bool answered = Probe();
    // A probe that Stop has cut short says nothing.
    if (!answered && !Sleep(Duration())) return;
    if (!answered) failed_.Add();
    health.OnProbe(answered);
    answers_ = health.answers();
  }
}

bool PortProbe::Probe() {
  using Clock = std::chrono::system_clock;  // gRPC's for deadlines
  const auto channel = options_.dial();
  const auto steps = std::max<int64_t>(1, options_.within.nanoseconds() / kLook.nanoseconds());
  const auto step = Chrono(options_.within) / steps;
  for (int64_t i = 0; i < steps; ++i) {
    if (channel->WaitForConnected(Clock::now() + step)) return true;
    if (!Sleep(Duration())) return false;
  }
  return false;
}

}  // namespace crowdsurf::dht
