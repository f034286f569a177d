#include "simulator/host/process.h"

namespace crowdsurf::simulator {

void Process::DoAt(Time when, std::function<void()> input) {
  queue_.At(when, [this, input = std::move(input)] { Do(input); });
}

void Process::ArmTimer(Time deadline) {
  // A later deadline is looked at again when the timer that is armed fires.
  if (deadline.infinite() || deadline >= armed_) return;
  armed_ = deadline;
  DoAt(deadline, [this] {
    // Another deadline is armed, a later one: this timer is void.
    if (armed_ > now()) return;
    armed_ = Time::Infinite();
    OnTimer();
  });
}

void Process::Freeze() {
  LogAs("host").Info("freezes");
  frozen_ = true;
}

void Process::Thaw() {
  if (frozen_) LogAs("host").Info("wakes");
  frozen_ = false;
  // An input may freeze or end the process again.
  while (alive_ && !frozen_ && !while_frozen_.empty()) {
    const auto input = std::move(while_frozen_.front());
    while_frozen_.pop_front();
    input();
  }
}

bool Process::Count() {
  // It dies before the action that its number reaches.
  if (alive_ && actions_ == dies_after_) Kill();
  if (alive_) ++actions_;
  return alive_;
}

void Process::End(std::string_view how) {
  if (!alive_) return;
  LogAs("host").Info(how);
  alive_ = false;
  while_frozen_.clear();
  OnDeath();
}

}  // namespace crowdsurf::simulator
