// RelayWorld: agents that find ways to each other; a function of the test says who may dial whom.
//
// Executes what the searches of all agents say, in order, while no time passes. Deterministic.
// Single sequence.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator-free-dht/core/relay/relay_searches.h"

namespace crowdsurf::dht {

enum class Dialed { kConnects, kRefused, kSilent };

inline DownEvidence EvidenceOf(Dialed how) {
  return how == Dialed::kRefused ? DownEvidence::kRefused : DownEvidence::kUnreachable;
}

inline Time At(double seconds) { return Time::FromNanoseconds(1'000'000'000) + Seconds(seconds); }
inline PeerId Peer(size_t number) {
  std::array<uint8_t, 32> bytes{};
  bytes[0] = static_cast<uint8_t>(number >> 8);
  bytes[1] = static_cast<uint8_t>(number);
  bytes[31] = 1;  // none is nobody
  return PeerId(bytes);
}
inline std::string End(size_t number) { return "end:" + std::to_string(number); }
inline Contact ContactOf(size_t number) { return {Peer(number), End(number)}; }

class RelayWorld {
 public:
  struct Node {
    Node(const RelayConfig& config, size_t number)
        : metrics(registry),
          paths(config, metrics),
          searches(config, Peer(number), paths, metrics, Rng(number + 1)) {}
    MetricRegistry registry;
    RelayMetrics metrics;
    RelayPaths paths;
    RelaySearches searches;
    std::map<uint64_t, std::pair<size_t, uint64_t>> askers;  // of others' questions
    std::map<uint64_t, std::string> ends;
    std::vector<uint64_t> joined;
    std::map<uint64_t, RelayAnswer> no;  // own ones
  };

  explicit RelayWorld(size_t nodes, RelayConfig wanted = {}) : config(wanted) {
    for (size_t i = 0; i < nodes; ++i) all.push_back(std::make_unique<Node>(config, i));
    dial = [this](size_t from, size_t to) {
      return all[from]->paths.neighbours().contains(Peer(to)) ? Dialed::kConnects
                                                              : Dialed::kRefused;
    };
  }
  void Link(size_t a, size_t b) {
    all[a]->paths.OnStreamUp(ContactOf(b), StreamPath::kDirect);
    all[b]->paths.OnStreamUp(ContactOf(a), StreamPath::kDirect);
  }
  void LinkChain() {
    for (size_t i = 0; i + 1 < all.size(); ++i) Link(i, i + 1);
  }
  // Node `from` wants `to`; all that follows without time passing happens. Its question's number.
  uint64_t Want(size_t from, size_t to) {
    RelayActions out;
    const uint64_t id = ++ids;
    all[from]->ends[id] = End(to);
    all[from]->searches.OnWanted(now, id, End(to), out);
    Do(from, out);
    Settle();
    return id;
  }
  void Pass(double seconds) {
    now = now + Seconds(seconds);
    for (size_t i = 0; i < all.size(); ++i) {
      RelayActions out;
      all[i]->searches.OnTimer(now, out);
      Do(i, out);
    }
    Settle();
  }
  bool Joined(size_t node, uint64_t id) const {
    const auto& joined = all[node]->joined;
    return std::find(joined.begin(), joined.end(), id) != joined.end();
  }
  double Questions() const {
    double sum = 0;
    for (const auto& node : all) sum += node->metrics.questions.value();
    return sum;
  }

  RelayConfig config;
  std::vector<std::unique_ptr<Node>> all;
  std::function<Dialed(size_t from, size_t to)> dial;
  std::vector<std::pair<size_t, std::string>> dials;
  Time now = At(0);
  uint64_t ids = 0;

 private:
  void Do(size_t at, const RelayActions& actions) {
    for (const RelayAction& action : actions) Do(at, action);
  }
  void Do(size_t at, const RelayAction& action) {
    Node& node = *all[at];
    if (const auto* d = std::get_if<RelayDial>(&action)) {
      dials.emplace_back(at, d->endpoint);
      const Dialed how = dial(at, std::stoul(d->endpoint.substr(4)));
      if (how == Dialed::kSilent) return;
      events_.push_back([this, at, id = d->question, how] {
        RelayActions out;
        if (how == Dialed::kConnects) {
          all[at]->searches.OnConnected(id, out);
        } else {
          all[at]->searches.OnDialFailed(now, id, EvidenceOf(how), out);
        }
        Do(at, out);
      });
    } else if (const auto* prove = std::get_if<RelayProve>(&action)) {
      const Contact end = prove->end;
      dials.emplace_back(at, end.endpoint);
      const Dialed how = dial(at, std::stoul(end.endpoint.substr(4)));
      if (how == Dialed::kSilent) return;
      events_.push_back([this, at, end, how] {
        RelayActions out;
        if (how == Dialed::kConnects) all[at]->paths.OnProved(now, end);
        all[at]->searches.OnProof(now, end.endpoint, EvidenceOf(how), out);
        Do(at, out);
      });
    } else if (const auto* ask = std::get_if<RelayAsk>(&action)) {
      size_t to = 0;
      while (Peer(to) != ask->neighbour.id) ++to;
      const uint64_t id = ++ids;
      all[to]->askers[id] = {at, ask->question};
      events_.push_back([this, to, id, question = ask->ask] {
        RelayActions out;
        all[to]->searches.OnQuestion(now, id, question, out);
        Do(to, out);
      });
    } else if (const auto* join = std::get_if<RelayJoin>(&action)) {
      node.joined.push_back(join->question);
      node.paths.OnCarried();  // the end answers
      Answer(at, join->question, RelayAnswer::kFound);
    } else {
      const auto& no = std::get<RelayNo>(action);
      if (!node.askers.contains(no.question)) node.no[no.question] = no.answer;
      Answer(at, no.question, no.answer);
    }
  }
  void Answer(size_t at, uint64_t question, RelayAnswer answer) {
    const auto it = all[at]->askers.find(question);
    if (it == all[at]->askers.end()) return;
    events_.push_back([this, at, asker = it->second, question, answer] {
      RelayActions out;
      Node& node = *all[asker.first];
      node.searches.OnAnswer(now, asker.second, Peer(at), answer, out);
      Do(asker.first, out);
      // Who lost the race is told that nobody waits.
      const bool won = out.size() == 1 && std::holds_alternative<RelayJoin>(out[0]);
      if (answer == RelayAnswer::kFound && !won) all[at]->searches.OnGone(question);
    });
  }
  void Settle() {
    for (; !events_.empty(); events_.pop_front()) std::function(events_.front())();
  }
  std::deque<std::function<void()>> events_;
};

}  // namespace crowdsurf::dht
