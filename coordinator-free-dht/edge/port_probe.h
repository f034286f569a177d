// PortProbe: asks the own peer port for a handshake, as any other agent would.
//
// A port that listens may still answer nobody: descriptors ran out, or a thread is stuck. Peers
// that are connected notice nothing, and no replacement gets in. So each `period` a connection is
// made and closed. PortHealth decides. One thread; Start and Stop from the owner's, answers from
// any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/metrics.h"
#include "base/time.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace crowdsurf::dht {

// Does the port answer? Pure. One probe may fail on a busy machine; two in a row are 15 to 30 s.
class PortHealth {
 public:
  static constexpr int kFailures = 2;
  void OnProbe(bool answered) { failures_ = answered ? 0 : failures_ + 1; }
  bool answers() const { return failures_ < kFailures; }

 private:
  int failures_ = 0;  // in a row
};

class PortProbe {
 public:
  struct Options {
    Duration period = Seconds(10);                         // between two probes
    Duration within = Seconds(5);                          // for a handshake
    std::function<std::shared_ptr<grpc::Channel>()> dial;  // a new channel to the own port
  };
  // `failed` outlives it.
  PortProbe(Options options, Counter& failed) : options_(std::move(options)), failed_(failed) {}
  ~PortProbe() { Stop(); }
  PortProbe(const PortProbe&) = delete;
  PortProbe& operator=(const PortProbe&) = delete;

  void Start();
  void Stop();  // idempotent
  // True until the first probes have failed.
  bool answers() const { return answers_; }

 private:
  void Run();
  bool Probe();
  bool Sleep(Duration time);  // false: stopped

  const Options options_;
  Counter& failed_;
  std::atomic<bool> answers_{true};
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace crowdsurf::dht
