// Report: a finished run as JSON for programs and as one self-contained page for people.
//
// Pure functions of what was recorded. The page has no script and loads nothing: charts are inline
// SVG with titles and descriptions, every chart's figures are also in a table or a sentence,
// colours follow the reader's light or dark preference. Bounded by the record. Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/report/run_record.h"

namespace crowdsurf::cli {

struct ReportInput {
  std::string job, strategy, outcome;  // outcome: Succeeded, Failed, Interrupted
  std::string message;                 // why it failed, its last output
  std::string failure;                 // the last worker's that failed, in a line; empty: none did
  int replicas = 0, group_size = 0;
  uint64_t seed = 0;
  std::string market;  // in words
  bool tensors_in_clear = false;
  RunFigures figures;
  std::vector<RecordPoint> points;
  std::vector<WorkerLife> lives;
  double launched = 0;
  std::optional<double> heldout, trigram, bigram, unigram;  // bits per character
  std::string sample, model_path;
};

nlohmann::json ReportJson(const ReportInput& input);
std::string ReportHtml(const ReportInput& input);

}  // namespace crowdsurf::cli
