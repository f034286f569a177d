// LoneNode: one dht::Node among peers that the test plays, to see each message that it sends, and
// when.
//
// A peer answers a request after a millisecond, as `answer` says. A silent peer never answers.
// Deterministic by its seed. Single sequence.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator-free-dht/core/node/node.h"
#include "coordinator-free-dht/core/node/node_metrics.h"
#include "coordinator-free-dht/core/wire/codec.h"
#include "coordinator-free-dht/core/wire/unsafe_hash_authority.h"

namespace crowdsurf::dht {

class LoneNode {
 public:
  using Body = decltype(Message::body);
  struct Player {
    Contact contact;
    PublicKey public_key{};
    bool silent = false;
  };
  struct Sent {
    Time at;
    Contact to;
    Message message;
  };

  explicit LoneNode(const NodeConfig& config = {}) : config_(config), metrics_(registry_) {
    const Player self = NewPlayer();
    authority_ = std::make_unique<UnsafeHashAuthority>(self.public_key);
    node_ = std::make_unique<Node>(Self{self.contact, self.public_key, 1}, config_,
                                   authority_.get(), &metrics_, rng_.Fork("node"));
  }

  // ---- peers ----
  Player& Add() {
    players_.push_back(NewPlayer());
    return players_.back();
  }
  // A peer that the node has in its table.
  Player& Meet() {
    Player& player = Add();
    Say(player, FindRequest{PointOf(player.contact.id), false});
    Run(Milliseconds(2));
    return player;
  }
  // One whose id fulfils `wanted`; not met.
  Player& AddWhere(const std::function<bool(const PeerId&)>& wanted) {
    Player player = NewPlayer();
    while (!wanted(player.contact.id)) player = NewPlayer();
    players_.push_back(player);
    return players_.back();
  }
  void Say(const Player& from, Body body, uint64_t id = 7) {
    Do([&](Node& node, Actions& out) {
      node.OnMessage(clocks(), from.contact, Message{id, std::move(body)}, out);
    });
  }
  RecordPtr Signed(const Player& owner, const Key& key, uint64_t sequence, Duration life) const {
    Record record;
    record.key = key;
    record.subkey = owner.contact.id;
    record.boot = 1;
    record.sequence = sequence;
    record.written = wall();
    record.expiry = wall() + life;
    record.value = {1, 2, 3};
    record.public_key = owner.public_key;
    record.signature = UnsafeHashAuthority(owner.public_key).Sign(SignedBytes(record));
    return std::make_shared<const Record>(record);
  }

  // ---- the node ----
  void Do(const std::function<void(Node&, Actions&)>& input) {
    Actions out;
    input(*node_, out);
    for (Action& action : out) {
      if (auto* send = std::get_if<Send>(&action)) {
        sent.push_back({now_, send->to, send->message});
        Answer(*send);
      } else if (auto* get = std::get_if<GetDone>(&action)) {
        gets.push_back(std::move(*get));
      } else if (auto* put = std::get_if<PutDone>(&action)) {
        puts.push_back(*put);
      } else if (auto* update = std::get_if<WatchUpdate>(&action)) {
        updates.push_back(std::move(*update));
      }
    }
  }
  PutResult Put(const Key& key, Duration life, size_t bytes = 3) {
    PutResult result{};
    Do([&](Node& node, Actions& out) {
      result = node.Put(clocks(), key, Bytes(bytes), life, out);
    });
    return result;
  }
  bool Watch(const Key& key) {
    bool taken = false;
    Do([&](Node& node, Actions& out) { taken = node.Watch(clocks(), key, out); });
    return taken;
  }
  void Get(const Key& key, size_t enough) {
    Do([&](Node& node, Actions& out) { node.Get(clocks(), key, enough, out); });
  }
  void Run(Duration span) {
    const Time end = now_ + span;
    for (;;) {
      const Time reply = replies_.empty() ? Time::Infinite() : replies_.front().at;
      const Time next = std::min(reply, node_->NextDeadline());
      if (next > end) break;
      now_ = std::max(now_, next);
      if (reply == next) {
        const Sent reply_due = std::move(replies_.front());
        replies_.pop_front();
        Do([&](Node& node, Actions& out) {
          node.OnMessage(clocks(), reply_due.to, reply_due.message, out);
        });
      } else {
        Do([&](Node& node, Actions& out) { node.OnTimer(clocks(), out); });
      }
    }
    now_ = end;
  }

  // Those of one kind in `sent`, in order; to one peer only if it is given.
  template <class Kind>
  std::vector<std::pair<Time, Kind>> SentOf(const Contact* to = nullptr) const {
    std::vector<std::pair<Time, Kind>> out;
    for (const Sent& one : sent) {
      const auto* body = std::get_if<Kind>(&one.message.body);
      if (body != nullptr && (to == nullptr || *to == one.to)) out.emplace_back(one.at, *body);
    }
    return out;
  }
  // Gives back the memory of all that is recorded below.
  void Forget() {
    sent = std::vector<Sent>();
    gets = std::vector<GetDone>();
    puts = std::vector<PutDone>();
    updates = std::vector<WatchUpdate>();
  }
  double Count(const std::string& name, const MetricLabels& labels = {}) const {
    return registry_.Value(name, labels);
  }

  Node& node() { return *node_; }
  Key point() const { return PointOf(node_->self().id); }
  Time now() const { return now_; }
  WallTime wall() const { return kEpoch + (now_ - kStart); }
  Clocks clocks() const { return {now_, wall()}; }

  std::vector<Sent> sent;
  std::vector<GetDone> gets;
  std::vector<PutDone> puts;
  std::vector<WatchUpdate> updates;
  // What a peer that is not silent says; nullopt: nothing.
  std::function<std::optional<Body>(const Contact& of, const Body& request)> answer =
      [](const Contact&, const Body& request) { return Agree(request); };

  static std::optional<Body> Agree(const Body& request) {
    if (std::holds_alternative<FindRequest>(request)) return FindReply{};
    if (const auto* store = std::get_if<StoreRequest>(&request)) {
      return StoreReply{static_cast<uint16_t>(store->records.size()), 0};
    }
    if (std::holds_alternative<WatchRequest>(request)) return WatchReply{true, {}};
    return std::nullopt;
  }

 private:
  static constexpr Time kStart = Time::FromNanoseconds(3'600'000'000'000);
  static constexpr WallTime kEpoch = WallTime::FromNanoseconds(1'800'000'000'000'000'000);

  Player NewPlayer() {
    Player player;
    for (uint8_t& byte : player.public_key) byte = static_cast<uint8_t>(rng_.Next());
    player.contact = {PeerIdOf(player.public_key, 1), "peer-" + std::to_string(++number_) + ":1"};
    return player;
  }
  void Answer(const Send& send) {
    for (const Player& player : players_) {
      if (player.contact.endpoint != send.to.endpoint || player.silent) continue;
      auto body = answer(player.contact, send.message.body);
      if (!body) continue;
      replies_.push_back(
          {now_ + Milliseconds(1), player.contact, Message{send.message.id, std::move(*body)}});
    }
  }

  Rng rng_{21};
  int number_ = 0;
  NodeConfig config_;
  MetricRegistry registry_;
  NodeMetrics metrics_;
  std::unique_ptr<UnsafeHashAuthority> authority_;
  std::unique_ptr<Node> node_;
  std::deque<Player> players_;  // references stay
  std::deque<Sent> replies_;    // by time
  Time now_ = kStart;
};

}  // namespace crowdsurf::dht
