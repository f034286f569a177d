#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <span>

#include "operator/core/decide/decision.h"
#include "operator/core/job/json_path.h"
#include "operator/core/job/rfc3339.h"

// What agents are told through annotations: seeds to find each other, and their configuration.
namespace crowdsurf::controller {
namespace {

constexpr size_t kMaxSeeds = 4;  // one live seed is enough for Kademlia; four survive a spot wave
constexpr size_t kEnoughSeeds = 2;  // with so many alive an annotation is not worth a write

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Kubelet writes an annotation's file from the pod as it was when kubelet began to look through all
// pods of its node; what is told while it looks waits for its next look, 30 to 90 s later (seen
// with seven workers of a node that were told at once). So each telling is followed by one more
// change of the pod, when that look is over: it takes 0.1 s and a few requests for each pod.
constexpr Duration kLookPatience[] = {Milliseconds(500)};
// Of a machine's last seconds that is too many: who has a notice is told in between, too, when a
// short look is over, and once more later: on a busy machine (load 20 on 2 cores) a look at four
// pods and what follows it took longer than half a second.
constexpr Duration kNoticePatience[] = {Milliseconds(150), Milliseconds(500), Milliseconds(1500)};

// "<instant>" or "<instant> <changes since>".
struct NotifiedAt {
  std::string_view instant;
  size_t changes = 0;
};

NotifiedAt Split(std::string_view text) {
  NotifiedAt told{text.substr(0, text.find(' '))};
  const std::string_view rest = text.substr(std::min(text.size(), told.instant.size() + 1));
  (void)std::from_chars(rest.data(), rest.data() + rest.size(), told.changes);
  return told;
}

void TellAgain(Decision& d) {
  std::set<std::string> told_now;
  for (const AnnotatePod& note : d.plan.annotations) told_now.insert(note.uid);
  for (const Worker& worker : d.workers) {
    const PodFacts& pod = *worker.pod;
    const std::string& text = pod.Annotation(kNotifiedAtAnnotation);
    if (text.empty() || worker.going || told_now.contains(pod.uid)) continue;
    const auto [instant, changes] = Split(text);
    const bool notice = !pod.Annotation(kNoticeAnnotation).empty();
    const std::span<const Duration> patience =
        notice ? std::span<const Duration>(kNoticePatience) : kLookPatience;
    size_t due = patience.size();
    if (const auto at = ParseInstant(instant)) {
      due = 0;
      while (due < patience.size() && d.now >= *at + patience[due]) ++due;
      if (due < patience.size()) d.WakeAt(*at + patience[due]);
    }
    std::string value;  // withdrawn: the last change
    if (due < patience.size()) {
      if (due <= changes) continue;
      value = std::string(instant) + " " + std::to_string(due);
    }
    d.plan.annotations.push_back(
        {pod.name, pod.uid, kNotifiedAtAnnotation, value, reason::kNotifiedAgain});
  }
}

}  // namespace

std::string ConfigFor(const TrainingJob& job) {
  return JsonText({{"generation", job.generation},
                   {"averaging", job.spec.averaging},
                   {"target", job.spec.target},
                   {"checkpoint", job.spec.checkpoint}});
}

namespace {

std::vector<const PodFacts*> LivingByAge(const Decision& d) {
  std::vector<const PodFacts*> living;
  for (const Worker& worker : d.workers) {
    if (worker.alive()) living.push_back(worker.pod);
  }
  std::sort(living.begin(), living.end(), [](const PodFacts* a, const PodFacts* b) {
    return std::tie(a->created, a->index, a->incarnation) <
           std::tie(b->created, b->index, b->incarnation);
  });
  return living;
}

// Of the living the first ones that can be dialled: one more than a worker needs, which may be one.
std::vector<std::string> EldersOf(const std::vector<const PodFacts*>& by_age) {
  std::vector<std::string> elders;
  for (const PodFacts* pod : by_age) {
    if (elders.size() > kMaxSeeds) break;
    if (!pod->address.empty()) elders.push_back(pod->address);
  }
  return elders;
}

// Everybody gets the same elders, so that a young job cannot fall into islands of two.
std::vector<std::string> SeedsAmong(const Decision& d, const std::vector<std::string>& elders,
                                    const std::string& own_address) {
  std::vector<std::string> seeds = d.spec().bootstrap_peers;
  size_t own = 0;
  for (const std::string& elder : elders) {
    if (own == kMaxSeeds) break;
    if (elder == own_address) continue;
    seeds.push_back(elder);
    ++own;
  }
  return seeds;
}

}  // namespace

std::vector<std::string> SeedsFor(const Decision& d, const std::string& own_address) {
  return SeedsAmong(d, EldersOf(LivingByAge(d)), own_address);
}

namespace {

// Seats are taken in the order of coming, so these are a worker's neighbours towards the root of
// RelaySum's trees: the one before it in a chain, the one at half its place in a binary tree
// (worker/core/view/graph.cc). A firewall may let it dial its neighbours only, and then no elder.
std::vector<std::string> TreeNeighbours(const std::vector<const PodFacts*>& by_age, size_t place) {
  std::vector<std::string> neighbours;
  if (place == 0) return neighbours;
  for (const size_t other : {place - 1, place / 2}) {
    const std::string& address = by_age[other]->address;
    if (other != place && !address.empty() &&
        std::find(neighbours.begin(), neighbours.end(), address) == neighbours.end()) {
      neighbours.push_back(address);
    }
  }
  return neighbours;
}

void KeepInformed(Decision& d) {
  // In the other modes all pods are going, and a patch would be a request for nothing.
  if (d.mode != Mode::kWorking && d.mode != Mode::kFinishing) return;
  const std::string config = ConfigFor(d.in.job);
  std::set<std::string> live(d.spec().bootstrap_peers.begin(), d.spec().bootstrap_peers.end());
  for (const Worker& worker : d.workers) {
    if (worker.alive() && !worker.pod->address.empty()) live.insert(worker.pod->address);
  }
  const bool on_tree = d.spec().averaging.value("strategy", "") == "RelaySum";
  const std::vector<const PodFacts*> by_age = LivingByAge(d);
  const std::vector<std::string> elders = EldersOf(by_age);
  for (size_t place = 0; place < by_age.size(); ++place) {
    const PodFacts& pod = *by_age[place];
    if (pod.Annotation(kConfigAnnotation) != config) {
      d.plan.annotations.push_back({pod.name, pod.uid, kConfigAnnotation, config, reason::kConfig});
    }
    const std::vector<std::string> has = Lines(pod.Annotation(kSeedsAnnotation));
    const auto usable =
        static_cast<size_t>(std::count_if(has.begin(), has.end(), [&](const std::string& seed) {
          return seed != pod.address && live.count(seed) > 0;
        }));
    std::vector<std::string> seeds = SeedsAmong(d, elders, pod.address);
    bool lacks_neighbour = false;
    if (on_tree) {
      for (std::string& seed : TreeNeighbours(by_age, place)) {
        lacks_neighbour |= std::find(has.begin(), has.end(), seed) == has.end();
        if (std::find(seeds.begin(), seeds.end(), seed) == seeds.end())
          seeds.push_back(std::move(seed));
      }
    }
    // Seeds are renewed only for a worker that needs them: each loss would else patch every pod.
    if (usable >= std::min(seeds.size(), kEnoughSeeds) && !lacks_neighbour) continue;
    std::string text;
    for (const std::string& seed : seeds) text += seed + "\n";
    d.plan.annotations.push_back({pod.name, pod.uid, kSeedsAnnotation, text, reason::kSeeds});
  }
}

}  // namespace

std::optional<WallTime> NotifiedAtOf(const PodFacts& pod) {
  return ParseInstant(Split(pod.Annotation(kNotifiedAtAnnotation)).instant);
}

// Last, who is told nothing new: the patches of a plan go out in any order, and one that takes the
// instant away must not follow one that sets it.
void InformAgents(Decision& d) {
  KeepInformed(d);
  TellAgain(d);
}

}  // namespace crowdsurf::controller
