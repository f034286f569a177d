#include "worker/edge/agent/agent_summary.h"

#include <absl/strings/str_cat.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace crowdsurf::worker {
namespace {

using Json = nlohmann::json;

// JSON has neither NaN nor infinity.
Json OrNull(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

// A u64 as text: JSON's readers round large numbers.
std::string Hex16(uint64_t value) { return absl::StrCat(absl::Hex(value, absl::kZeroPad16)); }

Json TimesOf(const AveragingTotals& averagings) {
  Json out = {{"number", averagings.number}, {"whole", averagings.whole}};
  for (size_t part = 0; part < kAveragingParts.size(); ++part)
    out[std::string(kAveragingParts[part])] = averagings.parts[part];
  return out;
}

}  // namespace

std::string SummaryJson(const PeerSummary& core, const EdgeSummary& edge) {
  Json view = nullptr;
  if (core.view) {
    view = {{"epoch", core.view->epoch},     {"hash", core.view->hash.brief()},
            {"members", core.view->members}, {"radices", core.view->radices},
            {"branch", core.view->branch},   {"lineage", core.view->lineage.brief()}};
  }
  Json lineages = Json::array();
  for (const ViewHash& lineage : core.lineages) lineages.push_back(lineage.brief());
  Json members = Json::array();
  for (const auto& member : core.members) {
    members.push_back({{"worker", member.worker}, {"cell", member.cell}});
  }
  // The names that operator/core/pods/agent_summary.cc reads.
  const RoundTally& rounds = core.rounds;
  const Json out = {
      {"job", edge.job},
      {"worker", edge.worker},
      {"peer", edge.peer.hex()},
      {"state", NameOf(core.state)},
      {"step", core.step},
      {"samples", core.samples},
      {"samples_per_second", edge.samples_per_second},
      {"loss", OrNull(core.loss)},
      {"metrics", core.metrics},
      {"view", view},
      {"lineages", lineages},
      {"cell", core.cell.empty() ? Json(nullptr) : Json(core.cell)},
      {"averaging", core.averaging.value()},
      {"job_samples", core.job_samples},
      {"job_seconds", core.job_seconds},
      {"target_met", core.target_met},
      {"steward", core.steward},
      {"rounds",
       {{"completed", rounds.completed()},
        {"fast", rounds.fast},
        {"repaired", rounds.repaired},
        {"adopted", rounds.adopted},
        {"kept", rounds.kept},
        {"aborted", rounds.aborted},
        {"orphaned", rounds.orphaned},
        {"branch", rounds.branch}}},
      {"averagings",
       {{"delivered", core.averagings_delivered}, {"abandoned", core.averagings_abandoned}}},
      {"hash_mismatches", core.divergence},
      {"stall_seconds", edge.stall_seconds},
      {"averaging_seconds", TimesOf(edge.averagings)},
      {"trouble", edge.trouble},
      {"silent_seeds", edge.silent_seeds},
      {"write_error", edge.write_error},
      {"trainer",
       {{"state", edge.trainer},
        {"seconds_since_step", edge.seconds_since_step},
        {"stacks", edge.trainer_stacks},
        {"tensors", edge.tensors},
        {"elements", edge.elements},
        {"order", edge.order == 0 ? "" : Hex16(edge.order)}}},
      {"round_seconds",
       {{"p50", OrNull(core.round_seconds_p50)}, {"p95", OrNull(core.round_seconds_p95)}}},
      {"members", members},
      {"started_unix", edge.started_unix},
      {"first_step_unix", OrNull(edge.first_step_unix)},
      {"joined_with_state", core.joined_with_state},
      {"waitingFor", edge.waiting_for},
      {"waitingSeconds", edge.waiting_seconds}};
  // Names of members and metrics come from outside: what is no UTF-8 is replaced, never thrown.
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string StartingJson(const EdgeSummary& edge) {
  const Json out = {{"job", edge.job},
                    {"worker", edge.worker},
                    {"state", NameOf(PeerState::kStarting)},
                    {"started_unix", edge.started_unix},
                    {"waitingFor", edge.waiting_for},
                    {"waitingSeconds", edge.waiting_seconds}};
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string TerminationJson(const Termination& termination) {
  const Json out = {{"reason", termination.reason},
                    {"write_error", termination.write_error},
                    {"averaging", termination.averaging.value()},
                    {"samples", termination.samples},
                    {"step", termination.step},
                    {"loss", OrNull(termination.loss)},
                    {"waitingFor", termination.waiting_for},
                    {"waitingSeconds", termination.waiting_seconds}};
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace crowdsurf::worker
