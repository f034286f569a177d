#include "operator/core/observe/held_bytes.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr size_t kTreeNode = 48;  // of a map, beside what it holds

size_t Texts(std::initializer_list<const std::string*> texts) {
  size_t bytes = 0;
  for (const std::string* text : texts) bytes += text->size();
  return bytes;
}

size_t Texts(const std::optional<ContainerEnd>& end) {
  return end ? Texts({&end->reason, &end->output}) : 0;
}

}  // namespace

// `sizeof` counts the object itself; what it points to is added.
// NOLINTBEGIN(bugprone-sizeof-container)
size_t HeldBytes(const json& value) {
  size_t bytes = sizeof value;
  if (const auto* text = value.get_ptr<const std::string*>())
    return bytes + sizeof *text + text->size();
  if (const auto* list = value.get_ptr<const json::array_t*>()) {
    for (const json& item : *list) bytes += HeldBytes(item);
  }
  if (const auto* members = value.get_ptr<const json::object_t*>()) {
    for (const auto& [name, member] : *members) {
      bytes += kTreeNode + sizeof name + name.size() + HeldBytes(member);
    }
  }
  return bytes;
}

size_t HeldBytes(const PodEntry& pod) {
  const PodFacts& facts = pod.facts;
  size_t bytes = sizeof pod + Texts({&pod.job, &pod.job_uid, &pod.http, &facts.name, &facts.uid,
                                     &facts.node, &facts.status_reason, &facts.status_message,
                                     &facts.disruption_target, &facts.init_name, &facts.wait,
                                     &facts.waiting_reason, &facts.waiting_message, &facts.address,
                                     &facts.agent_image, &facts.agent_cpu_limit});
  bytes += Texts(facts.trainer) + Texts(facts.agent) + Texts(facts.init);
  for (const PodCondition& one : facts.conditions) {
    bytes += sizeof one + Texts({&one.type, &one.status});
  }
  for (const auto& [key, text] : facts.annotations) {
    bytes += kTreeNode + 2 * sizeof key + Texts({&key, &text});
  }
  return bytes;
}

size_t HeldBytes(const NodeEntry& node) {
  return sizeof node + (node.facts.mark ? node.facts.mark->signal.size() : 0);
}

// The status is there twice: as it was read, and as the server has it. What else a spec holds is
// some hundred bytes.
size_t HeldBytes(const JobEntry& job) {
  const TrainingJobSpec& spec = job.job.spec;
  size_t bytes = sizeof job + 2 * HeldBytes(job.status_json);
  for (const json* part : {&spec.averaging, &spec.target, &spec.checkpoint, &spec.agent,
                           &spec.scheduling, &spec.max_unavailable, &spec.pod_template}) {
    bytes += HeldBytes(*part);
  }
  for (const std::string& peer : spec.bootstrap_peers) bytes += sizeof peer + peer.size();
  for (const auto* said : {&job.violations, &job.warnings})
    for (const std::string& one : *said) bytes += sizeof one + one.size();
  return bytes;
}

// NOLINTEND(bugprone-sizeof-container)

}  // namespace crowdsurf::controller
