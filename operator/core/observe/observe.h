// Observe: objects of the API server as the facts that Decide reads.
//
// A pod of tens of kilobytes becomes some hundred bytes, a node a mark and an instant; what cannot
// be read is nullopt, which the cache counts. Input is from outside: missing or odd fields have
// neutral meanings, nothing throws. KubeCluster's caches call it. Pure, any thread; texts are cut
// at kMaxOutputInStatus. Source: docs/pod-lifecycle.md 2 and 4, docs/kubernetes.md.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "operator/core/port/snapshot.h"

namespace crowdsurf::controller {

// A worker's pod, and whose it is. Equal when nothing that is used differs.
struct PodEntry {
  PodFacts facts;
  std::string job;      // "namespace/name"
  std::string job_uid;  // of the controlling owner
  std::string http;     // host:port of the agent's plain port, once known
  bool operator==(const PodEntry&) const = default;
};

struct NodeEntry {
  NodeFacts facts;
  bool spot = false;
  bool operator==(const NodeEntry&) const = default;
};

struct JobEntry {
  TrainingJob job;  // with violations spec holds only suspend and managed_by
  TrainingJobStatus status;
  nlohmann::json status_json;  // as the server has it
  std::vector<std::string> violations;
  std::vector<std::string> warnings;  // of a spec without violations
  bool operator==(const JobEntry& other) const {
    return job.uid == other.job.uid && job.generation == other.job.generation &&
           job.deleting == other.job.deleting && status_json == other.status_json;
  }
};

// Violations, or warnings, as one message for people, at most 900 bytes.
std::string WhatIsWrong(const std::vector<std::string>& violations);

// nullopt: not a pod of a TrainingJob (no controlling owner of that kind, no worker labels).
std::optional<PodEntry> ObservePod(const nlohmann::json& pod);
std::optional<NodeEntry> ObserveNode(const nlohmann::json& node);
std::optional<JobEntry> ObserveJob(const nlohmann::json& job);

// "namespace/name", or "name" for a cluster-scoped object; empty when the object has no name.
std::string KeyOf(const nlohmann::json& object);
// metadata.resourceVersion as a number, to tell which of two states of one object is newer; 0 when
// it is none.
uint64_t VersionOf(const nlohmann::json& object);
uint64_t VersionNumber(const std::string& resource_version);

// status as it is written: StatusToJson and what people and the scale subresource look at: state,
// selector, progress.percent.
nlohmann::json ShownStatus(const TrainingJob& job, const TrainingJobStatus& status);
// One word: Succeeded, Failed, Suspended, Finishing, Running, Degraded or why it is not running.
std::string StateOf(const TrainingJobStatus& status);

// The RFC 7386 patch that makes `after` of `before`: what is gone is null; an empty object when
// they are equal. Both are objects.
nlohmann::json MergeDiff(const nlohmann::json& before, const nlohmann::json& after);

}  // namespace crowdsurf::controller
