// Relay: questions of neighbours and of this agent, and the connections that come of them.
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "coordinator-free-dht/edge/relay_impl.h"

namespace crowdsurf::dht {

ServedCall* Relay::Impl::Serve(const std::string& key) {
  {
    const std::lock_guard lock(mutex_);
    // One certificate gets half of them: it must not keep all others from being carried.
    const size_t most = key.empty() ? options_.config.carried : options_.config.carried / 2;
    const auto same = served_of_.find(key);
    const bool full = served_ >= options_.config.carried ||
                      (same != served_of_.end() && same->second >= std::max<size_t>(1, most));
    // Before the relay runs there is no thread to work on the question.
    if (stopped_ || !thread_.joinable() || full) {
      metrics_.Refuse(RelayRefusal::kConnections);
      return nullptr;
    }
    ++served_;
    ++served_of_[key];
  }
  const auto share = std::shared_ptr<void>(nullptr, [this, key](void*) {
    const std::lock_guard lock(mutex_);
    if (const auto it = served_of_.find(key); --it->second == 0) served_of_.erase(it);
  });
  const auto call = std::make_shared<ServedCall>(served_host_, share);
  asio::post(loop_, [this, call] {
    const uint64_t id = ++next_id_;
    call->Serve(
        [this, call = std::weak_ptr(call), id](const RelayQuestion& question) {
          // Weak, since the call keeps this function: else neither would ever go.
          if (const auto alive = call.lock()) OnOpened(id, alive, question);
        },
        [this, id] { Gone(id); });
  });
  return call.get();
}

void Relay::Impl::OnOpened(uint64_t id, const std::shared_ptr<ServedCall>& call,
                           const RelayQuestion& question) {
  // Only now: a caller that never names an end has no session.
  Session& session = sessions_[id];
  session.reply = [call](RelayAnswer answer, std::function<void(std::shared_ptr<RelayLeg>)> ready) {
    if (answer != RelayAnswer::kFound) return call->Answer(answer, nullptr);
    call->Answer(answer, [call, ready = std::move(ready)](LegResult result) {
      ready(result == LegResult::kDone ? call : nullptr);
    });
  };
  Decide([&](Time now, RelayActions& out) { searches_.OnQuestion(now, id, question, out); });
}

void Relay::Impl::Want(const std::string& endpoint, RelayReply reply) {
  const uint64_t id = ++next_id_;
  sessions_[id].reply = std::move(reply);
  Decide([&](Time now, RelayActions& out) { searches_.OnWanted(now, id, endpoint, out); });
}

void Relay::Impl::Connect(const std::string& endpoint, Connected done) {
  asio::post(loop_, [this, endpoint, done = std::move(done)] {
    Want(endpoint, [this, done](RelayAnswer answer,
                                const std::function<void(std::shared_ptr<RelayLeg>)>& ready) {
      int ends[2] = {-1, -1};
      const bool found = answer == RelayAnswer::kFound &&
                         ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0;
      if (!found) {
        // No descriptor was left: the way that was found is cut, and the dialer tries again later.
        if (ready) ready(nullptr);
        const bool dead = answer == RelayAnswer::kDead;
        return done(nullptr, dead ? DownEvidence::kRefused : DownEvidence::kUnreachable);
      }
      SocketLeg::Socket own(loop_);
      own.assign(asio::generic::stream_protocol(AF_UNIX, SOCK_STREAM), ends[0]);
      ready(std::make_shared<SocketLeg>(std::move(own)));
      done(std::make_shared<RelaySocket>(ends[1]), DownEvidence::kUnreachable);
    });
  });
}

void Relay::Impl::Join(uint64_t id, std::shared_ptr<RelayLeg> left,
                       const std::shared_ptr<RelayLeg>& right) {
  const auto it = sessions_.find(id);
  // The asker went while its answer was on the way, or the relay has stopped.
  if (left == nullptr || it == sessions_.end()) {
    if (left != nullptr) left->Abort();
    right->Abort();
    return Gone(id);
  }
  RelayPipe::Events events;
  events.on_answer = [this] { WithPaths([](RelayPaths& paths) { paths.OnCarried(); }); };
  events.on_end = [this, id] { Gone(id); };
  it->second.pipe =
      std::make_shared<RelayPipe>(loop_, std::move(left), right, metrics_.bytes, std::move(events));
  it->second.pipe->Start();
}

// Ends what a question has started and nobody waits for any more.
void Relay::Impl::Drop(Session& session, const PeerId* keep) {
  if (session.dial) {
    std::error_code ignored;
    session.dial->close(ignored);
  }
  for (const auto& [neighbour, call] : session.asks) {
    if (keep == nullptr || neighbour != *keep) call->Abort();
  }
  session.dial = nullptr;
  session.asks.clear();
  if (keep == nullptr && session.right) session.right->Abort();
}

void Relay::Impl::Gone(uint64_t id) {
  const auto it = sessions_.find(id);
  if (it != sessions_.end()) {
    Drop(it->second, nullptr);
    sessions_.erase(it);
  }
  const std::lock_guard lock(mutex_);
  searches_.OnGone(id);
}

}  // namespace crowdsurf::dht
