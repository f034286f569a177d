// Pod builder: the objects of a job, its workers' pods and headless Service, as JSON.
//
// The user's template is kept word for word and only added to: the agent as a native sidecar, the
// link between the two on memory, the agent's own folder, what the cluster tells it as files, a
// token for the signer, names, labels, tolerations. KubeCluster and dry runs call it. Pure, any
// thread; bounded by the template. Names that begin with `crowdsurf` are ours (the CRD refuses
// them). Source: docs/kubernetes.md; docs/pod-lifecycle.md 1, 2, 3, 5, 6, 8.
// The files of the cluster are a read-only volume at /run/crowdsurf-cluster, because kubelet swaps
// a whole folder of them at once and never renews a subPath.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "operator/core/job/training_job.h"
#include "operator/core/port/plan.h"

namespace crowdsurf::controller {

inline constexpr std::string_view kJobNameLabel = "crowdsurf.io/job-name";
inline constexpr std::string_view kJobUidLabel = "crowdsurf.io/job-uid";
inline constexpr std::string_view kIndexLabel = "crowdsurf.io/worker-index";
inline constexpr std::string_view kIncarnationLabel = "crowdsurf.io/incarnation";
inline constexpr int kPeerPort = 7946;
inline constexpr int kTensorPort = 7947;
inline constexpr int kHttpPort = 7948;

// Where spot workers may be placed. Preferred: on spot nodes if there are any, else anywhere, so
// that a cluster without such labels works. Required: they wait for a spot node.
enum class SpotPlacement { kPreferred, kRequired };

struct PodBuilderOptions {
  std::string agent_image;  // where spec.agent.image is silent
  std::string signer_url;   // https://host:port
  SpotPlacement spot = SpotPlacement::kPreferred;
  // What the job's agents trust, PEM: the job's CA and the signer's. It travels with the pod.
  std::string trust = {};
};

// Pre: job.spec is of a faultless manifest with its defaults.
nlohmann::json BuildPod(const TrainingJob& job, const CreatePod& create,
                        const PodBuilderOptions& options);

// Of all workers of a job: <job>-peers, headless, names before readiness.
nlohmann::json BuildService(const TrainingJob& job);
std::string ServiceName(const TrainingJob& job);

// The ControllerRevision that keeps `spec`, as the user wrote it: of the job's generation.
nlohmann::json BuildSpecRevision(const TrainingJob& job, const nlohmann::json& spec);

// A PodDisruptionBudget over the job's workers; nullopt: the spec asks for none. A percentage is of
// the job's scale subresource.
std::optional<nlohmann::json> BuildDisruptionBudget(const TrainingJob& job);

// Only workers of the job reach each other's peer and tensor ports (everybody may, TLS permitting,
// where the job has peers in other clusters); the http port stays open, and so does what workers
// call. nullopt: the spec asks for none.
std::optional<nlohmann::json> BuildNetworkPolicy(const TrainingJob& job);
// Both bear it.
std::string GuardName(const TrainingJob& job);

// The selector of a job's workers, as the scale subresource shows it.
std::string WorkerSelector(const TrainingJob& job);

// Bytes of a Kubernetes quantity without exponent ("2Gi", "500M", "1.5"); nullopt for others.
std::optional<double> QuantityBytes(const std::string& text);

}  // namespace crowdsurf::controller
