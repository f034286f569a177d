#include "operator/core/pods/agent_summary.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "operator/core/job/json_path.h"
#include "operator/core/job/start_cause.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr size_t kMaxMetrics = 32;    // the link has fewer slots
constexpr size_t kMaxAxes = 16;       // 64^16 workers
constexpr size_t kMaxLineages = 8;    // as an agent tells
constexpr size_t kMaxSeeds = 32;      // as many bootstrap peers as a manifest may have
constexpr size_t kLongestText = 256;  // bytes
constexpr size_t kLongestStacks = 4096;
constexpr double kMostMembers = 1e6;              // of a view; a job has 10^5 workers at most
constexpr char kTargetMetWords[] = "target met";  // an agent's reason to end

double NumberAt(const json* object, std::string_view name, double fallback = 0) {
  const json* value = Member(object, name);
  if (value == nullptr || !value->is_number()) return fallback;
  const double number = value->get<double>();
  return std::isfinite(number) ? number : fallback;
}

// Through a double, so exact up to 2^53.
uint64_t CountAt(const json* object, std::string_view name) {
  const double number = NumberAt(object, name);
  // A double of 2^64 or more has no uint64_t.
  return number > 0 && number < 1.8e19 ? static_cast<uint64_t>(number) : 0;
}

std::optional<double> MaybeAt(const json* object, std::string_view name) {
  const json* value = Member(object, name);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return NumberAt(object, name);
}

bool FlagAt(const json* object, std::string_view name) {
  const json* value = Member(object, name);
  return value != nullptr && *value == true;
}

std::string ClippedAt(const json* object, std::string_view name) {
  const json* value = Member(object, name);
  return value != nullptr && value->is_string()
             ? CutText(value->get_ref<const std::string&>(), kLongestText)
             : std::string();
}

std::vector<int> AxesAt(const json* object, std::string_view name) {
  std::vector<int> axes;
  const json* list = Member(object, name);
  if (list == nullptr || !list->is_array() || list->size() > kMaxAxes) return axes;
  for (const json& value : *list) {
    if (!value.is_number_integer() || value < 0 || value > 1'000'000) return {};
    axes.push_back(value.get<int>());
  }
  return axes;
}

// What is no cause of the closed set says nothing.
template <class Said>
void ReadWait(const json* in, Said& out) {
  out.waiting_for = ClippedAt(in, "waitingFor");
  if (!IsWaitingFor(out.waiting_for)) out.waiting_for.clear();
  if (!out.waiting_for.empty()) out.waiting_seconds = std::max(0.0, NumberAt(in, "waitingSeconds"));
}

std::vector<std::string> TextsAt(const json* object, const char* name, size_t most) {
  std::vector<std::string> texts;
  const json* list = Member(object, name);
  if (list == nullptr || !list->is_array()) return texts;
  for (const json& value : *list) {
    if (texts.size() == most) break;
    if (value.is_string() && !value.get_ref<const std::string&>().empty())
      texts.push_back(CutText(value.get_ref<const std::string&>(), kLongestText));
  }
  return texts;
}

// Sums only grow from zero: a negative one is garbage, and counts as none.
SummaryAveragings AveragingsAt(const json* in) {
  SummaryAveragings out;
  out.number = CountAt(in, "number");
  out.whole = std::max(0.0, NumberAt(in, "whole"));
  for (size_t part = 0; part < kAveragingPartNames.size(); ++part)
    out.parts[part] = std::max(0.0, NumberAt(in, kAveragingPartNames[part]));
  return out;
}

}  // namespace

std::optional<AgentSummary> ParseSummary(std::string_view text) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return std::nullopt;
  const json* in = &document;
  AgentSummary out;
  out.worker = ClippedAt(in, "worker");
  out.state = ClippedAt(in, "state");
  out.step = CountAt(in, "step");
  out.samples = CountAt(in, "samples");
  out.samples_per_second = NumberAt(in, "samples_per_second");
  out.loss = MaybeAt(in, "loss");
  if (const json* metrics = Member(in, "metrics"); metrics != nullptr && metrics->is_object()) {
    for (const auto& [name, value] : metrics->items()) {
      if (value.is_number() && out.metrics.size() < kMaxMetrics) {
        out.metrics[CutText(name, kLongestText)] = value.get<double>();
      }
    }
  }
  if (const json* view = Member(in, "view"); view != nullptr && view->is_object()) {
    out.view =
        SummaryView{CountAt(view, "epoch"),
                    ClippedAt(view, "hash"),
                    static_cast<int>(std::clamp(NumberAt(view, "members"), 0.0, kMostMembers)),
                    AxesAt(view, "radices"),
                    FlagAt(view, "branch"),
                    ClippedAt(view, "lineage")};
  }
  out.lineages = TextsAt(in, "lineages", kMaxLineages);
  out.silent_seeds = TextsAt(in, "silent_seeds", kMaxSeeds);
  out.cell = AxesAt(in, "cell");
  out.averaging = CountAt(in, "averaging");
  out.job_samples = CountAt(in, "job_samples");
  out.target_met = FlagAt(in, "target_met");
  out.steward = FlagAt(in, "steward");
  const json* rounds = Member(in, "rounds");
  out.rounds = {CountAt(rounds, "completed"), CountAt(rounds, "fast"),  CountAt(rounds, "repaired"),
                CountAt(rounds, "adopted"),   CountAt(rounds, "kept"),  CountAt(rounds, "aborted"),
                CountAt(rounds, "orphaned"),  CountAt(rounds, "branch")};
  out.hash_mismatches = CountAt(in, "hash_mismatches");
  out.stall_seconds = NumberAt(in, "stall_seconds");
  out.averagings = AveragingsAt(Member(in, "averaging_seconds"));
  out.round_p50 = NumberAt(Member(in, "round_seconds"), "p50");
  out.round_p95 = NumberAt(Member(in, "round_seconds"), "p95");
  out.started_unix = NumberAt(in, "started_unix");
  out.first_step_unix = MaybeAt(in, "first_step_unix");
  out.joined_with_state = FlagAt(in, "joined_with_state");
  out.trouble = ClippedAt(in, "trouble");
  out.write_error = ClippedAt(in, "write_error");
  const json* trainer = Member(in, "trainer");
  out.trainer_hangs = ClippedAt(trainer, "state") == "hung";
  // Its end: faulthandler writes the main thread last.
  if (trainer != nullptr) out.trainer_stacks = TextTail(TextAt(*trainer, "stacks"), kLongestStacks);
  out.seconds_since_step = NumberAt(trainer, "seconds_since_step");
  out.tensors = ClippedAt(trainer, "tensors");
  out.elements = CountAt(trainer, "elements");
  out.order = ClippedAt(trainer, "order");
  ReadWait(in, out);
  return out;
}

std::string WaitOf(const AgentSummary& summary) {
  // Of a trainer that has registered, the agent waits for its first step.
  return summary.waiting_for == "trainer" && !summary.tensors.empty() ? "step"
                                                                      : summary.waiting_for;
}

std::optional<AgentWords> ParseLastWords(std::string_view text) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const json* in = &document;
  AgentWords out;
  if (!document.is_object()) return std::nullopt;
  out.reason = ClippedAt(in, "reason");
  if (out.reason.empty()) return std::nullopt;
  out.progress.samples = CountAt(in, "samples");
  out.progress.step = CountAt(in, "step");
  out.progress.averaging = CountAt(in, "averaging");
  out.progress.loss = MaybeAt(in, "loss");
  out.progress.target_met = out.reason == kTargetMetWords;
  ReadWait(in, out);
  return out;
}

}  // namespace crowdsurf::controller
