#include <algorithm>
#include <nlohmann/json.hpp>

#include "operator/core/decision.h"
#include "operator/core/rfc3339.h"

// What agents are told through annotations: seeds to find each other, and their configuration.
namespace crowdsurf::controller {
namespace {

constexpr size_t kMostSeeds = 4;  // one live seed is enough for Kademlia; four survive a spot wave
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
constexpr Duration kLookPatience = Milliseconds(500);

void TellAgain(Decision& d) {
  std::set<std::string> told_now;
  for (const AnnotatePod& note : d.plan.annotations) told_now.insert(note.uid);
  for (const Worker& worker : d.workers) {
    const PodFacts& pod = *worker.pod;
    const std::string& told = pod.Annotation(kToldAtAnnotation);
    if (told.empty() || worker.going || told_now.contains(pod.uid)) continue;
    const auto at = ParseInstant(told);
    if (at && d.now < *at + kLookPatience) {
      d.WakeAt(*at + kLookPatience);
      continue;
    }
    d.plan.annotations.push_back({pod.name, pod.uid, kToldAtAnnotation, "", reason::kToldAgain});
  }
}

}  // namespace

std::string ConfigFor(const TrainingJob& job) {
  return nlohmann::json{{"generation", job.generation},
                        {"averaging", job.spec.averaging},
                        {"target", job.spec.target},
                        {"checkpoint", job.spec.checkpoint}}
      .dump();
}

// Everybody gets the same elders, so that a young job cannot fall into islands of two.
std::vector<std::string> SeedsFor(const Decision& d, const std::string& own_address) {
  std::vector<const PodFacts*> known;
  for (const Worker& worker : d.workers) {
    if (worker.alive() && !worker.pod->address.empty()) known.push_back(worker.pod);
  }
  std::sort(known.begin(), known.end(), [](const PodFacts* a, const PodFacts* b) {
    return std::tie(a->created, a->index, a->incarnation) <
           std::tie(b->created, b->index, b->incarnation);
  });
  std::vector<std::string> seeds = d.spec().bootstrap_peers;
  size_t own = 0;
  for (const PodFacts* pod : known) {
    if (own == kMostSeeds) break;
    if (pod->address == own_address) continue;
    seeds.push_back(pod->address);
    ++own;
  }
  return seeds;
}

void InformAgents(Decision& d) {
  TellAgain(d);
  if (d.mode != Mode::kWorking && d.mode != Mode::kFinishing) return;
  const std::string config = ConfigFor(d.in.job);
  std::set<std::string> live(d.spec().bootstrap_peers.begin(), d.spec().bootstrap_peers.end());
  for (const Worker& worker : d.workers) {
    if (worker.alive() && !worker.pod->address.empty()) live.insert(worker.pod->address);
  }
  for (const Worker& worker : d.workers) {
    if (!worker.alive()) continue;
    const PodFacts& pod = *worker.pod;
    if (pod.Annotation(kConfigAnnotation) != config) {
      d.plan.annotations.push_back({pod.name, pod.uid, kConfigAnnotation, config, reason::kConfig});
    }
    const std::vector<std::string> has = Lines(pod.Annotation(kSeedsAnnotation));
    const auto usable =
        static_cast<size_t>(std::count_if(has.begin(), has.end(), [&](const std::string& seed) {
          return seed != pod.address && live.count(seed) > 0;
        }));
    const std::vector<std::string> seeds = SeedsFor(d, pod.address);
    if (usable >= std::min(seeds.size(), kEnoughSeeds)) continue;
    std::string text;
    for (const std::string& seed : seeds) text += seed + "\n";
    d.plan.annotations.push_back({pod.name, pod.uid, kSeedsAnnotation, text, reason::kSeeds});
  }
}

}  // namespace crowdsurf::controller
