// Process: a process in virtual time. It lives, freezes and wakes, and dies: also between any two
// of its actions.
//
// Inputs go through Do: they wait while it is frozen, and are lost when it is dead. Every action is
// counted before it is done, so that a world can end the process after the n-th. Owner: one world;
// single sequence. Bound: what waits while it is frozen is the world's to limit.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string_view>
#include <utility>

#include "base/id.h"
#include "simulator/engine/event_queue.h"
#include "simulator/engine/node_log.h"

namespace crowdsurf::simulator {

struct ProcessName {
  int node = 0;  // its number in the world
  PeerId id;
};

class Process {
 public:
  // `log`: null when nobody listens; else, like `queue`, outlives this.
  Process(const ProcessName& name, EventQueue& queue, LogSink* log)
      : name_(name), queue_(queue), log_(name.node, log, queue) {}
  virtual ~Process() = default;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Freeze();
  void Thaw();  // what came meanwhile comes now
  void Kill() { End("dies"); }
  void DieAfter(uint64_t actions) { dies_after_ = actions; }

  int index() const { return name_.node; }
  const PeerId& id() const { return name_.id; }
  bool alive() const { return alive_; }
  uint64_t actions() const { return actions_; }

 protected:
  // Runs `input`, called as void(), now, or when the process wakes.
  template <class Input>
  void Do(Input&& input) {
    if (!alive_) return;
    if (frozen_)
      while_frozen_.emplace_back(std::forward<Input>(input));
    else
      input();
  }
  void DoAt(Time when, std::function<void()> input);
  void DoAfter(Duration delay, std::function<void()> input) {
    DoAt(now() + delay, std::move(input));
  }
  // OnTimer comes at `deadline` or earlier; Infinite: as was.
  void ArmTimer(Time deadline);
  // One more action; false: it is dead, and does it no more.
  bool Count();
  // The end of its life; `how` is for the log.
  void End(std::string_view how);

  bool frozen() const { return frozen_; }
  EventQueue& queue() { return queue_; }
  Time now() const { return queue_.now(); }
  Logger LogAs(std::string_view module) { return log_.LoggerFor(module); }

 private:
  virtual void OnDeath() = 0;
  virtual void OnTimer() = 0;  // nothing is armed any more

  const ProcessName name_;
  EventQueue& queue_;
  NodeLog log_;
  bool alive_ = true;
  bool frozen_ = false;
  uint64_t actions_ = 0;
  uint64_t dies_after_ = UINT64_MAX;
  Time armed_ = Time::Infinite();
  std::deque<std::function<void()>> while_frozen_;
};

}  // namespace crowdsurf::simulator
