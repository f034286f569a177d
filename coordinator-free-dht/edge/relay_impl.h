// The inside of Relay: its thread, its sessions, and the two cores.
//
// Private to edge/relay*. `paths_` and `searches_` are under `mutex_`, for transports ask from
// their own threads; everything below them belongs to the relay's thread. A session is one question
// and, when it was answered, the connection that came of it. Calls are counted, so that Stop can
// wait until gRPC has let go of the last one.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>

#include "coordinator-free-dht/core/relay/relay_searches.h"
#include "coordinator-free-dht/edge/relay.h"
#include "coordinator-free-dht/edge/relay_call.h"
#include "coordinator-free-dht/edge/relay_entrance.h"

namespace crowdsurf::dht {

class Relay::Impl {
 public:
  Impl(RelayOptions options, MetricRegistry& metrics, Logger logger);

  grpc::Service* service() { return service_.get(); }
  Status Start();
  void Stop();
  const RelayEntrance& entrance() const { return entrance_; }
  void Connect(const std::string& endpoint, Connected done);
  // A neighbour's call; nullptr: there are too many, or the relay does not run. `key`: of the
  // certificate that it showed; empty: of none.
  ServedCall* Serve(const std::string& key);
  std::string KeyOf(const grpc::CallbackServerContext& call) const {
    return options_.known ? options_.known(call) : std::string();
  }

  // Under the mutex; any thread.
  template <class Work>
  auto WithPaths(Work work) {
    const std::lock_guard lock(mutex_);
    return work(paths_);
  }
  Time Now() const { return options_.now(); }
  void SetProver(RelayPort port, std::function<void(const Contact&)> prover);
  // The own dial of `endpoint` has ended, and the paths know how.
  void OnProof(const std::string& endpoint, DownEvidence evidence);

 private:
  class Service;
  struct Session {
    RelayReply reply;
    std::shared_ptr<asio::ip::tcp::socket> dial;
    std::map<PeerId, std::shared_ptr<AskedCall>> asks;
    std::shared_ptr<RelayLeg> right;  // joined
    std::shared_ptr<RelayPipe> pipe;
  };
  // Gives `work` the searches and executes what they say.
  template <class Work>
  void Decide(Work work);
  void Want(const std::string& endpoint, RelayReply reply);
  void OnOpened(uint64_t id, const std::shared_ptr<ServedCall>& call,
                const RelayQuestion& question);
  void Do(const RelayDial& action);
  void Do(const RelayProve& action);
  void Do(const RelayAsk& action);
  void Do(const RelayJoin& action);
  void Do(const RelayNo& action);
  void OnDialed(uint64_t id, std::error_code error);
  void Join(uint64_t id, std::shared_ptr<RelayLeg> left, const std::shared_ptr<RelayLeg>& right);
  void Drop(Session& session, const PeerId* keep);
  void Gone(uint64_t id);
  void ArmTimer();
  std::shared_ptr<grpc::Channel> ChannelTo(const Contact& neighbour);
  std::function<void()> Releaser(size_t& calls);

  const RelayOptions options_;
  RelayMetrics metrics_;
  const Logger log_;
  std::unique_ptr<grpc::Service> service_;

  std::mutex mutex_;
  std::condition_variable released_;
  size_t asked_ = 0, served_ = 0;            // calls that gRPC has not let go of
  std::map<std::string, size_t> served_of_;  // of those that were served, by key
  bool stopped_ = false;
  RelayPaths paths_;
  RelaySearches searches_;
  std::map<RelayPort, std::function<void(const Contact&)>> provers_;

  asio::io_context loop_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  RelayEntrance entrance_;
  asio::steady_timer timer_;
  RelayCallHost asked_host_, served_host_;
  std::map<uint64_t, Session> sessions_;
  uint64_t next_id_ = 0;
  Remembered<PeerId, std::pair<std::string, std::shared_ptr<grpc::Channel>>> channels_;
  std::thread thread_;
};

template <class Work>
void Relay::Impl::Decide(Work work) {
  RelayActions actions;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    work(options_.now(), actions);
  }
  for (const RelayAction& action : actions) {
    std::visit([this](const auto& one) { this->Do(one); }, action);
  }
  ArmTimer();
}

}  // namespace crowdsurf::dht
