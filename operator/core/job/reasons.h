// Every condition, reason and event of the operator, declared once.
//
// Conditions, events, metric labels and logs use these and nothing else, so a reason that a user
// sees can be searched for. Closed sets: a reason is never built from input. Any thread.
#pragma once

#include <array>
#include <string_view>

namespace crowdsurf::controller {

// In the order in which they appear in a status.
enum class ConditionType {
  kAccepted,           // the spec is well-formed and somebody reconciles it
  kRunning,            // at least one worker trains, and at least minReplicas
  kDegraded,           // fewer workers than wanted
  kSuspended,          //
  kPartitioned,        // more than half of the workers are reported dead: nothing is deleted
  kTwoLineages,        // workers train in lines that do not see each other
  kTensorsInTheClear,  // tls.mode is Disabled: parameters travel unencrypted
  kTargetReached,      // the view says so; workers are finishing
  kSucceeded,          // final
  kFailed              // final
};
inline constexpr std::array<std::string_view, 10> kConditionNames = {
    "Accepted",    "Running",           "Degraded",      "Suspended", "Partitioned",
    "TwoLineages", "TensorsInTheClear", "TargetReached", "Succeeded", "Failed"};
constexpr std::string_view Name(ConditionType type) {
  return kConditionNames[static_cast<size_t>(type)];
}

// What a job says of itself whose tensors are not encrypted.
inline constexpr std::string_view kInTheClear =
    "spec.tls.mode is Disabled: parameters travel in the clear, and whoever is on their way can "
    "read and change them; control is encrypted";

// Reasons of conditions and events, and of what is done to a pod.
namespace reason {
// the state of the job
inline constexpr std::string_view kValid = "Valid";
inline constexpr std::string_view kInvalidSpec = "InvalidSpec";
inline constexpr std::string_view kWorkersTraining = "WorkersTraining";
inline constexpr std::string_view kStarting = "Starting";
inline constexpr std::string_view kAllWorkersReady = "AllWorkersReady";
inline constexpr std::string_view kWorkersStarting = "WorkersStarting";
inline constexpr std::string_view kReplacing = "Replacing";
inline constexpr std::string_view kBackingOff = "BackingOff";
inline constexpr std::string_view kNoSpotCapacity = "NoSpotCapacity";
inline constexpr std::string_view kUnschedulable = "Unschedulable";
inline constexpr std::string_view kSchedulingGated = "SchedulingGated";
inline constexpr std::string_view kSignerNotReached = "SignerNotReached";
inline constexpr std::string_view kTrainerNotConnected = "TrainerNotConnected";
inline constexpr std::string_view kPeersNotReached = "PeersNotReached";
inline constexpr std::string_view kStateNotFetched = "StateNotFetched";
inline constexpr std::string_view kVolumeNotReady = "VolumeNotReady";
inline constexpr std::string_view kNoStep = "NoStep";
inline constexpr std::string_view kImagePull = "ImagePull";
inline constexpr std::string_view kQuota = "Quota";
inline constexpr std::string_view kForbidden = "Forbidden";
inline constexpr std::string_view kInvalidTemplate = "InvalidTemplate";
inline constexpr std::string_view kCannotCreate = "CannotCreate";
inline constexpr std::string_view kTooManyWorkers = "TooManyWorkers";
inline constexpr std::string_view kNameTaken = "NameTaken";
inline constexpr std::string_view kLeftovers = "Leftovers";
inline constexpr std::string_view kReconcileError = "ReconcileError";
inline constexpr std::string_view kSuspendedByUser = "SuspendedByUser";
inline constexpr std::string_view kResumed = "Resumed";
inline constexpr std::string_view kTargetMet = "TargetMet";
inline constexpr std::string_view kTargetOpen = "TargetOpen";
inline constexpr std::string_view kAllSucceeded = "AllSucceeded";
inline constexpr std::string_view kAnySucceeded = "AnySucceeded";
inline constexpr std::string_view kBackoffLimitExceeded = "BackoffLimitExceeded";
inline constexpr std::string_view kFailurePolicy = "FailurePolicy";
inline constexpr std::string_view kDeadlineExceeded = "DeadlineExceeded";
inline constexpr std::string_view kStartDeadlineExceeded = "StartDeadlineExceeded";
inline constexpr std::string_view kMaxPeersReportedDead = "MaxPeersReportedDead";
inline constexpr std::string_view kTwoLineages = "TwoLineages";
inline constexpr std::string_view kOneLineage = "OneLineage";
inline constexpr std::string_view kSameBatches = "SameBatches";
inline constexpr std::string_view kFinished = "Finished";
inline constexpr std::string_view kTlsDisabled = "TlsDisabled";
// a worker was created
inline constexpr std::string_view kFirstWorker = "FirstWorker";
inline constexpr std::string_view kReplacement = "Replacement";
inline constexpr std::string_view kRetry = "Retry";
// a worker was deleted
inline constexpr std::string_view kScaleDown = "ScaleDown";
inline constexpr std::string_view kSurplus = "Surplus";
inline constexpr std::string_view kNoticeExpires = "NoticeExpires";
inline constexpr std::string_view kEnded = "Ended";
inline constexpr std::string_view kStuck = "Stuck";
inline constexpr std::string_view kJobFinished = "JobFinished";
inline constexpr std::string_view kLastWords = "LastWords";
// the platform took a worker: disruptions, never failures
inline constexpr std::string_view kNodeGone = "NodeGone";
inline constexpr std::string_view kNodeMarked = "NodeMarked";
inline constexpr std::string_view kNodeNotReady = "NodeNotReady";
inline constexpr std::string_view kEvicted = "Evicted";
inline constexpr std::string_view kRefusedByNode = "RefusedByNode";
inline constexpr std::string_view kContainerLost = "ContainerLost";
inline constexpr std::string_view kPodDeleted = "PodDeleted";
inline constexpr std::string_view kAgentCrashed = "AgentCrashed";
inline constexpr std::string_view kPeersReportedDead = "PeersReportedDead";
// the user's code broke: failures
inline constexpr std::string_view kExitCode = "ExitCode";
inline constexpr std::string_view kOomKilled = "OOMKilled";
inline constexpr std::string_view kTrainerHung = "TrainerHung";
inline constexpr std::string_view kEndedBeforeTarget = "EndedBeforeTarget";
inline constexpr std::string_view kAgentNeverStarted = "AgentNeverStarted";
inline constexpr std::string_view kCannotStart = "CannotStart";
inline constexpr std::string_view kInitContainer = "InitContainer";
inline constexpr std::string_view kLimitExceeded = "LimitExceeded";
// a notice, sent or withdrawn
inline constexpr std::string_view kNotice = "Notice";
inline constexpr std::string_view kNoticeWithdrawn = "NoticeWithdrawn";
inline constexpr std::string_view kSeeds = "Seeds";
inline constexpr std::string_view kConfig = "Config";
inline constexpr std::string_view kNotifiedAgain = "NotifiedAgain";
}  // namespace reason

// The container that the operator adds to a worker's pod.
inline constexpr std::string_view kAgentContainer = "crowdsurf-agent";

// Annotations of a pod; local mode writes the same content as files (docs/local-mode.md).
inline constexpr std::string_view kNoticeAnnotation = "crowdsurf.io/notice";
inline constexpr std::string_view kConfigAnnotation = "crowdsurf.io/config";
inline constexpr std::string_view kSeedsAnnotation = "crowdsurf.io/seeds";
inline constexpr std::string_view kCaAnnotation = "crowdsurf.io/ca";
// When one of the three changed last, until the pod was changed once more after it; of notices with
// the number of changes made since: "2026-11-21T10:22:58Z 1".
inline constexpr std::string_view kNotifiedAtAnnotation = "crowdsurf.io/notified-at";
inline constexpr std::string_view kCapacityAnnotation = "crowdsurf.io/capacity";

}  // namespace crowdsurf::controller
