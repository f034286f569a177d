#include "operator/core/pods/node_marks.h"

#include "operator/core/job/json_path.h"
#include "operator/core/job/rfc3339.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

// Certain before weak, then a known deadline before none, then the earlier deadline.
bool Stronger(const Mark& a, const Mark& b) {
  if (a.weak != b.weak) return b.weak;
  if (a.deadline.has_value() != b.deadline.has_value()) return a.deadline.has_value();
  return a.deadline && *a.deadline < *b.deadline;
}

void Consider(std::optional<Mark>& best, Mark mark) {
  if (!best || Stronger(mark, *best)) best = std::move(mark);
}

Mark FromRow(const MarkRow& row, std::optional<WallTime> since) {
  Mark mark{row.signal, std::nullopt, row.weak};
  if (since && row.seconds > 0) mark.deadline = *since + Seconds(row.seconds);
  return mark;
}

// What a condition says of a scheduled event of Azure: "Preempt Scheduled: Mon, 01 Jan 2029
// 00:00:00 GMT. For more information, see ...". Freeze holds a machine for seconds.
// Source: learn.microsoft.com, "Scheduled Events for Linux VMs"; Azure/AKS#3463.
struct AzureEvent {
  bool machine_stays = false;
  std::optional<WallTime> at;  // when it begins, where that is said
};
AzureEvent EventIn(const json& condition) {
  constexpr std::string_view kSays = " Scheduled: ";
  const std::string message = TextAt(condition, "message");
  const size_t at = message.find(kSays);
  if (at == std::string::npos) return {};
  AzureEvent event{message.substr(0, at) == "Freeze", std::nullopt};
  event.at = ParseHttpDate(std::string_view(message).substr(at + kSays.size()));
  return event;
}

// A taint or a condition of `node` against one row.
void Match(const json& node, const MarkRow& row, std::optional<Mark>& best) {
  const std::string_view value = row.value;
  switch (row.kind) {
    case MarkKind::kTaint:
      Each(node, "spec.taints", [&](const json& taint) {
        if (TextAt(taint, "key") != row.key) return;
        if (!value.empty() && TextAt(taint, "value") != value) return;
        Consider(best, FromRow(row, InstantAt(taint, "timeAdded")));
      });
      return;
    case MarkKind::kCondition:
      Each(node, "status.conditions", [&](const json& condition) {
        if (TextAt(condition, "type") != row.key || TextAt(condition, "status") != value) return;
        const AzureEvent event = EventIn(condition);
        if (event.machine_stays) return;
        const auto since = InstantAt(condition, "lastTransitionTime");
        Mark mark = FromRow(row, since);
        // One that lies before the event was announced is none.
        if (event.at && (!since || *event.at > *since)) mark.deadline = event.at;
        Consider(best, std::move(mark));
      });
      return;
    case MarkKind::kLabel: {
      const json* labels = At(node, "metadata.labels");
      const json* label = Member(labels, row.key);
      if (label == nullptr || !label->is_string()) return;
      // A label carries no instant, so nobody knows its deadline.
      if (value.empty() || *label == value) Consider(best, FromRow(row, std::nullopt));
      return;
    }
  }
}

}  // namespace

const std::vector<SpotLabel>& SpotLabels() {
  static const std::vector<SpotLabel> kLabels = {
      {"karpenter.sh/capacity-type", "spot"},
      {"eks.amazonaws.com/capacityType", "SPOT"},
      {"cloud.google.com/gke-spot", "true"},
      {"cloud.google.com/gke-provisioning", "spot"},
      {"cloud.google.com/gke-preemptible", "true"},
      {"kubernetes.azure.com/scalesetpriority", "spot"},
      {"kubernetes.azure.com/priority", "spot"},
      {"oci.oraclecloud.com/oke-is-preemptible", "true"},
  };
  return kLabels;
}

const std::vector<SpotTaint>& SpotTaints() {
  static const std::vector<SpotTaint> kTaints = {
      {"cloud.google.com/gke-spot", "true"},
      {"kubernetes.azure.com/scalesetpriority", "spot"},
  };
  return kTaints;
}

const std::vector<MarkRow>& MarkTable() {
  using enum MarkKind;
  static const std::vector<MarkRow> kTable = {
      {"SpotInterruption", kTaint, "aws-node-termination-handler/spot-itn", "", 120, false},
      {"ScheduledMaintenance", kTaint, "aws-node-termination-handler/scheduled-maintenance", "", 0,
       false},
      {"AsgTermination", kTaint, "aws-node-termination-handler/asg-lifecycle-termination", "", 0,
       false},
      {"RebalanceRecommendation", kTaint, "aws-node-termination-handler/rebalance-recommendation",
       "", 0, true},
      {"KarpenterDisrupted", kTaint, "karpenter.sh/disrupted", "", 0, false},
      {"KarpenterDisruption", kTaint, "karpenter.sh/disruption", "disrupting", 0, false},
      {"ImpendingTermination", kTaint, "cloud.google.com/impending-node-termination", "", 0, false},
      {"MaintenanceOngoing", kLabel, "cloud.google.com/active-node-maintenance", "ONGOING", 0,
       false},
      {"VMEventScheduled", kCondition, "VMEventScheduled", "True", 30, false},
      {"PreemptionScheduled", kCondition, "PreemptionScheduled", "True", 30, false},
      {"ScaleDown", kTaint, "ToBeDeletedByClusterAutoscaler", "", 0, false},
      {"ScaleDownCandidate", kTaint, "DeletionCandidateOfClusterAutoscaler", "", 0, true},
      {"OutOfService", kTaint, "node.kubernetes.io/out-of-service", "", 0, false},
      {"Shutdown", kTaint, "node.cloudprovider.kubernetes.io/shutdown", "", 0, false},
      {"GracefulShutdown", kCondition, "GracefulNodeShutdownInProgress", "True", 0, false},
      {"Drain", kCondition, "DrainInProgress", "True", 0, false},
      {"Maintenance", kCondition, "MaintenanceInProgress", "True", 0, false},
      {"MaintenancePlanned", kCondition, "MaintenancePlanned", "True", 0, true},
  };
  return kTable;
}

std::optional<Mark> FindMark(const json& node) {
  std::optional<Mark> best;
  for (const MarkRow& row : MarkTable()) Match(node, row, best);
  if (At(node, "metadata.deletionTimestamp") != nullptr) {
    Consider(best, {"NodeDeleted", std::nullopt, false});
  }
  const json* cordoned = At(node, "spec.unschedulable");
  if (cordoned != nullptr && *cordoned == true) Consider(best, {"Cordon", std::nullopt, true});
  return best;
}

}  // namespace crowdsurf::controller
