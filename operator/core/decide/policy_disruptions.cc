#include <algorithm>

#include "base/text.h"
#include "operator/core/decide/decision.h"

// Workers that the platform took: they are counted, and those that never ran are made again after a
// back-off, elsewhere where a node refused them.
namespace crowdsurf::controller {
namespace {

// A broken device plug-in or a full disk takes a person; a burst of pods that overfilled a node
// passes in seconds. The worst of a wrong guess is a placement that is second best.
constexpr Duration kAvoidFor = Seconds(300);
// Each is a term of a pod's affinity. Of more the latest count.
constexpr size_t kMaxAvoided = 16;
constexpr size_t kMaxAsked = 100;  // pods of a plan; each is a request, and the rest waits its turn
constexpr int kMaxRow = 16;        // beyond, the back-off is at its cap anyhow
constexpr size_t kMaxRefusalWords = 512;  // bytes of what a kubelet says

// Nothing but the node or an admission of the platform kept it from running: its replacement may
// fare alike. What a lost machine took says nothing of the next one.
bool NeverRan(const Worker& worker) {
  if (worker.pod->ever_ready) return false;
  const std::string_view why = worker.verdict.reason;
  return why == reason::kRefusedByNode || why == reason::kEvicted || why == reason::kPodDeleted ||
         why == reason::kContainerLost;
}

void Avoid(Decision& d, const std::string& node) {
  std::vector<AvoidedNode>& avoided = d.status.avoided;
  std::erase_if(avoided, [&](const AvoidedNode& one) { return one.node == node; });
  const auto earlier = [](const AvoidedNode& a, const AvoidedNode& b) { return a.until < b.until; };
  if (avoided.size() >= kMaxAvoided) {
    avoided.erase(std::min_element(avoided.begin(), avoided.end(), earlier));
  }
  avoided.push_back({node, d.now + kAvoidFor});
  std::sort(avoided.begin(), avoided.end(),
            [](const AvoidedNode& a, const AvoidedNode& b) { return a.node < b.node; });
}

// The next pod of `index` comes later with each one in a row. first: how many come at once.
void BackOff(Decision& d, int index, const std::string& pod, int first) {
  RetryState& retry = d.status.retry[index];
  const int row = retry.disruptions - first;
  retry.disruptions = std::min(retry.disruptions + 1, kMaxRow);
  retry.not_before = std::max(retry.not_before, d.now);
  if (row < 0) return;
  Rng rng = RngFor(d, pod);
  // Whole microseconds: what a status can hold, so that it reads back as it was.
  const int64_t wait = d.options.disruption_backoff.Delay(row, rng).nanoseconds() / 1000;
  retry.not_before = std::max(retry.not_before, d.now + Microseconds(wait));
}

void Count(Decision& d, std::string_view why) {
  ++d.status.disruptions;
  ++d.status.disruptions_by_reason[std::string(why)];
  d.status.last_disruption = d.now;
}

// "OutOfcpu: Node didn't have enough resource: cpu"; empty: kubelet said nothing.
std::string KubeletWords(const PodFacts& pod) {
  std::string text = pod.status_reason;
  if (!pod.status_message.empty()) text += (text.empty() ? "" : ": ") + pod.status_message;
  return CutText(text, kMaxRefusalWords);
}

}  // namespace

void Disrupted(Decision& d, const Worker& worker) {
  const PodFacts& pod = *worker.pod;
  // A pod that was told to leave has been counted when it was told.
  if (d.Counted(NoticeName(pod.name))) return;
  const bool told = !pod.Annotation(kNoticeAnnotation).empty();
  const std::string_view why = told ? reason::kNodeMarked : worker.verdict.reason;
  Count(d, why);
  if (why != reason::kRefusedByNode) {
    d.Say(why, pod.name + " was taken by the platform");
  } else {
    Avoid(d, pod.node);
    d.status.last_refusal = RefusalNote{pod.name, pod.node, KubeletWords(pod), d.now};
    d.Say(why, pod.name + " was refused by node " + pod.node + ": " + KubeletWords(pod),
          EventType::kWarning);
  }
  if (NeverRan(worker)) BackOff(d, pod.index, pod.name, 0);
}

// A pod that was there, was not seen to end and is there no more: deleted by force, or deleted
// while no operator looked. Of each index only the last one can be: an earlier one ended before.
void CountVanished(Decision& d) {
  std::set<std::string_view> present;
  for (const Worker& worker : d.workers) present.insert(worker.pod->name);
  const bool met = d.told.target_met || d.status.target_time.has_value();
  for (const auto& [index, incarnation] : d.status.incarnations) {
    // Zero means that no worker of this index was ever made.
    if (incarnation == 0) continue;
    const std::string name = PodName(d.in.job.name, index, incarnation);
    if (present.count(name) || d.Counted(name)) continue;
    if (d.in.asks_pods && !d.in.gone_pods.contains(name)) {
      d.unheard.insert(index);
      if (d.plan.ask_pods.size() < kMaxAsked) d.plan.ask_pods.push_back(name);
      continue;
    }
    d.Count(name);
    // After the target workers end and go, and nothing is lost with them.
    if (met || d.Counted(NoticeName(name))) continue;
    Count(d, reason::kPodDeleted);
    d.Say(reason::kPodDeleted, name + " has vanished");
    // It may have trained for days, so one is replaced at once. Something that takes every pod
    // makes a row of them.
    BackOff(d, index, name, 1);
  }
}

}  // namespace crowdsurf::controller
