// Agent: one real node over loopback, as tests need it: host thread, transport and DHT service.
//
// Tests talk to it by closures on its host thread and wait for conditions with a deadline; nothing
// sleeps. Kill ends the transport as abruptly as a process can without dying.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/down_evidence.h"
#include "coordinator-free-dht/edge/dht_service.h"
#include "tests/unit/dht_edge/test_authority.h"

namespace crowdsurf::dht {

// Waits for `condition`, which other threads make true; checks it whenever Notify is called.
class Waiter {
 public:
  void Notify() {
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }
  // A test fails by `seconds` and never waits for them: most come true within milliseconds.
  bool Wait(const std::function<bool()>& condition, double seconds = 60) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!condition()) {  // not under the lock: it may ask a host thread that is notifying us
      if (std::chrono::steady_clock::now() > until) return condition();
      std::unique_lock lock(mutex_);
      // Counters have no Notify: look again soon in any case.
      changed_.wait_for(lock, std::chrono::milliseconds(2));
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class Agent {
 public:
  struct Down {
    Contact peer;
    bool hard;
  };

  struct Clock {  // as a hello told it
    PublicKey key;
    Duration ahead;  // of ours
    Duration round_trip;
  };

  Agent(const std::filesystem::path& directory, const TransportOptions& options, Waiter* waiter)
      : waiter_(waiter), host_(4096, metrics_, Logger()) {
    auto identity = Identity::Open(directory);
    if (!identity.ok()) std::abort();
    identity_ = *std::move(identity);
    transport_ = std::make_unique<PeerTransport>(options, *identity_, host_, metrics_, Logger());
    transport_->SetHandlers(
        {[this](Time now, WallTime wall, const Contact& from, ChannelKind kind, Bytes body) {
           if (kind == ChannelKind::kDht) {
             service_->OnMessage(now, wall, from, body);
             return;
           }
           const std::lock_guard lock(mutex_);
           received_.emplace_back(from, std::string(AsString(body)));
           waiter_->Notify();
         },
         [this](Time, WallTime, const Contact& peer) {
           const std::lock_guard lock(mutex_);
           up_.push_back(peer);
           waiter_->Notify();
         },
         [this](Time now, WallTime wall, const Contact& peer, DownEvidence evidence) {
           service_->OnPeerDown(now, wall, peer, evidence);
           const std::lock_guard lock(mutex_);
           down_.push_back({peer, IsDead(evidence)});
           waiter_->Notify();
         },
         [this](Time now, WallTime wall, const PublicKey& key, WallTime said, Duration round_trip) {
           service_->OnClock(now, wall, key, said, round_trip);
           const std::lock_guard lock(mutex_);
           clocks_.push_back({key, said - wall, round_trip});
         }});
    start_status_ = transport_->Start();
    if (!start_status_.ok()) return;
    service_ = std::make_unique<DhtService>(DhtHost{host_, *transport_, *identity_}, NodeConfig(),
                                            1, metrics_, Logger());
    thread_ = std::thread([this] { host_.Run(); });
  }
  ~Agent() { Kill(); }

  void Kill() {
    transport_->Stop();
    host_.RequestStop(Duration());
    if (thread_.joinable()) thread_.join();
    service_.reset();
  }

  // Runs on the host thread and waits for it.
  void Do(const std::function<void(Time, WallTime, DhtService&)>& work) {
    std::promise<void> done;
    if (!host_.Post([&](Time now, WallTime wall) {
          work(now, wall, *service_);
          done.set_value();
        })) {
      std::abort();
    }
    done.get_future().wait();
  }
  void AddSeeds(const std::vector<std::string>& seeds) {
    Do([&](Time now, WallTime wall, DhtService& dht) { dht.AddSeeds(now, wall, seeds); });
  }
  void Watch(const Key& key) {
    Do([&](Time now, WallTime wall, DhtService& dht) {
      dht.Watch(now, wall, key, [this](Time, WallTime, const WatchUpdate& update) {
        const std::lock_guard lock(mutex_);
        for (const RecordPtr& record : update.records) {
          watched_[record->subkey] = std::string(AsString(record->value));
        }
        synced_ = synced_ || update.synced;
        waiter_->Notify();
      });
    });
  }
  void Put(const Key& key, const std::string& value) {
    Do([&](Time now, WallTime wall, DhtService& dht) {
      dht.Put(now, wall, key, Bytes(value.begin(), value.end()), Seconds(30));
    });
  }
  size_t contacts() {
    size_t out = 0;
    Do([&](Time, WallTime, DhtService& dht) { out = dht.node().contacts(); });
    return out;
  }

  Contact contact() const { return {identity_->id(), transport_->endpoint()}; }
  const Identity& identity() const { return *identity_; }
  PeerTransport& transport() { return *transport_; }
  HostLoop& host() { return host_; }
  MetricRegistry& metrics() { return metrics_; }
  const Status& start_status() const { return start_status_; }
  std::vector<std::pair<Contact, std::string>> received() { return Copy(received_); }
  std::vector<Contact> up() { return Copy(up_); }
  std::vector<Clock> clocks() { return Copy(clocks_); }
  std::vector<Down> down() { return Copy(down_); }
  std::map<PeerId, std::string> watched() { return Copy(watched_); }
  bool synced() { return Copy(synced_); }

 private:
  template <class T>
  T Copy(const T& value) {
    const std::lock_guard lock(mutex_);
    return value;
  }

  Waiter* const waiter_;
  MetricRegistry metrics_;
  HostLoop host_;
  std::unique_ptr<Identity> identity_;
  std::unique_ptr<PeerTransport> transport_;
  Status start_status_;
  std::unique_ptr<DhtService> service_;
  std::thread thread_;

  std::mutex mutex_;
  std::vector<std::pair<Contact, std::string>> received_;
  std::vector<Contact> up_;
  std::vector<Clock> clocks_;
  std::vector<Down> down_;
  std::map<PeerId, std::string> watched_;
  bool synced_ = false;
};

inline double Count(Agent& agent, const std::string& name, const MetricLabels& labels = {}) {
  return agent.metrics().Value(name, labels);
}

}  // namespace crowdsurf::dht
