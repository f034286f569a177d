// The parts of a worker's pod that we add: the agent, volumes, tolerations, placement.
//
// Private to operator/core (pod_builder.h is the door). Pure, any thread; sizes are constants but
// for the template's own. Source: docs/pod-lifecycle.md 1, 5, 6; docs/kubernetes.md.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/core/pods/pod_builder.h"

namespace crowdsurf::controller {

inline constexpr char kLinkVolume[] = "crowdsurf-link";
inline constexpr char kLinkPath[] = "/run/crowdsurf";
inline constexpr char kAgentVolume[] = "crowdsurf-own";
inline constexpr char kAgentPath[] = "/run/crowdsurf-agent";
inline constexpr char kClusterVolume[] = "crowdsurf-cluster";
inline constexpr char kClusterPath[] = "/run/crowdsurf-cluster";

// CROWDSURF_DIR, _JOB, _WORKER: of the agent and of the trainer.
nlohmann::json WorkerEnvironment(const TrainingJob& job, const CreatePod& create);
nlohmann::json AgentContainer(const TrainingJob& job, const CreatePod& create,
                              const PodBuilderOptions& options);
nlohmann::json WorkerVolumes(const TrainingJob& job);
// Exact taints, never a blanket Exists: Karpenter kills what tolerates its taint without a word.
nlohmann::json SpotTolerations();
void AddPlacement(nlohmann::json& spec, CapacityType capacity, SpotPlacement spot);
// On none of these nodes, besides what the spec asks for already.
void AddAvoidance(nlohmann::json& spec, const std::vector<std::string>& nodes);
// On one of these nodes only where no other fits.
void PreferOthers(nlohmann::json& spec, const std::vector<std::string>& nodes);

}  // namespace crowdsurf::controller
