#include <cmath>

#include "cli/report/report.h"

namespace crowdsurf::cli {
namespace {

using nlohmann::json;

json Maybe(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

json Maybe(const std::optional<double>& number) {
  // JSON has neither NaN nor infinity, and a reader must tell zero from a figure that is missing.
  return number && std::isfinite(*number) ? json(*number) : json(nullptr);
}

// Means over the averagings of all workers.
json SecondsOf(const controller::SummaryAveragings& averagings) {
  json out = {{"number", averagings.number}};
  const auto mean = [&](double sum) {
    return averagings.number == 0 ? json(nullptr)
                                  : json(sum / static_cast<double>(averagings.number));
  };
  out["whole"] = mean(averagings.whole);
  for (size_t part = 0; part < averagings.parts.size(); ++part)
    out[std::string(controller::kAveragingPartNames[part])] = mean(averagings.parts[part]);
  return out;
}

}  // namespace

json ReportJson(const ReportInput& input) {
  const RunFigures& f = input.figures;
  return {{"job", input.job},
          {"outcome", input.outcome},
          {"failure", Maybe(input.failure)},
          {"message", Maybe(input.message)},
          {"strategy", input.strategy},
          {"goodput", Maybe(f.goodput)},
          {"samples", f.samples},
          {"samples_per_second", f.samples_per_second},
          {"duration_seconds", f.duration_seconds},
          {"loss", Maybe(f.loss)},
          {"heldout_bits_per_char", Maybe(input.heldout)},
          {"trigram_bits_per_char", Maybe(input.trigram)},
          {"rounds",
           {{"completed", f.rounds_completed},
            {"failed", f.rounds_failed},
            {"failed_by_peer_loss", f.rounds_failed_by_peer_loss},
            {"repaired", f.rounds_repaired},
            {"hash_mismatches", f.hash_mismatches}}},
          {"apart_seconds", f.apart_seconds},
          {"preemptions", f.preemptions},
          {"replacement_seconds",
           {{"p50", Maybe(f.replacement_p50)}, {"p95", Maybe(f.replacement_p95)}}},
          {"averaging_stall_ratio", Maybe(f.averaging_stall_ratio)},
          {"averaging_seconds", SecondsOf(f.averagings)},
          {"workers", {{"min", f.workers_min}, {"max", f.workers_max}}},
          {"start_seconds", Maybe(f.start_seconds)},
          {"tensors", input.tensors_in_clear ? "in the clear" : "encrypted"},
          {"seed", input.seed},
          {"model", input.model_path}};
}

}  // namespace crowdsurf::cli
