#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/edge/clock.h"
#include "base/edge/files.h"
#include "cli/report/averaging_words.h"
#include "cli/report/report.h"
#include "cli/run/exit_codes.h"
#include "cli/run/session.h"
#include "operator/core/job/failure_text.h"
#include "operator/core/job/local_rules.h"
#include "operator/core/job/validate.h"
#include "operator/edge/local/process.h"

// After training: what the model is worth, the summary, the reports.
namespace crowdsurf::cli {
namespace {

using nlohmann::json;

constexpr Duration kEvaluation = Seconds(60);  // takes about two; a broken one must not hold us

std::string Fixed(const std::optional<double>& number, int digits, const char* unit = "") {
  if (!number) return "not measured";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f%s", digits, *number, unit);
  return text;
}

// The words after `flag` in the trainer's command, up to the next flag.
std::vector<std::string> WordsAfter(const std::vector<std::string>& words,
                                    const std::string& flag) {
  std::vector<std::string> found;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] != flag) continue;
    for (size_t j = i + 1; j < words.size() && words[j].compare(0, 2, "--") != 0; ++j) {
      found.push_back(words[j]);
    }
  }
  return found;
}

// Runs to its end; its output, or nothing when it failed.
std::string Output(const controller::ProcessOptions& options) {
  StatusOr<controller::Process> process = controller::Process::Start(options);
  if (!process.ok()) return {};
  const Time end = SteadyNow() + kEvaluation;
  while (!process->Reap() && SteadyNow() < end) {
    pollfd set[] = {{process->pidfd(), POLLIN, 0}, {process->output(), POLLIN, 0}};
    // Its output is drained while it runs: a full pipe would hold it for ever.
    poll(set, 2, 500);
    process->Drain();
  }
  // Half an answer is none.
  return process->exit_code() == 0 ? process->kept_output() : std::string();
}

std::optional<double> NumberAt(const json& object, const char* name) {
  const auto it = object.find(name);
  if (it == object.end() || !it->is_number()) return std::nullopt;
  return it->get<double>();
}

std::string MarketWords(const RunOptions& options) {
  const std::string notice =
      options.notice ? ", " + Span(options.notice->seconds()) + " notice" : ", without notice";
  if (!options.market.trace.empty()) return "a recorded market" + notice;
  if (!options.market.every) return "no spot market";
  const std::string many = options.market.count == 0 ? "all workers"
                           : options.market.count == 1
                               ? "one worker"
                               : std::to_string(options.market.count) + " workers";
  return many + " taken every " + Span(options.market.every->seconds()) + notice;
}

std::string PreemptionWords(const RunFigures& f) {
  if (f.preemptions == 0) return "no preemption";
  std::string words =
      absl::StrCat(f.preemptions, f.preemptions == 1 ? " preemption" : " preemptions");
  if (!f.replacement_p50) return words;
  return words + ", replaced in " + Fixed(f.replacement_p50, 2, " s") + " (p95 " +
         Fixed(f.replacement_p95, 2, " s") + ")";
}

}  // namespace

// crowdsurf-trainer knows its own models; other trainers' are left alone.
Evaluation Session::Evaluate() {
  Evaluation result;
  std::error_code error;
  // After an interrupt the user waits for the prompt, not for figures.
  if (interrupts_ > 0 || !std::filesystem::exists(ModelPath(), error)) return result;
  // The environment and the folder of the job's trainer, so that its relative paths hold here as
  // well.
  controller::LocalPlaces places;
  places.bin = bin_dir_;
  places.checkpoint = state_->checkpoint();
  std::vector<std::string> inherited;
  for (char** entry = environ; *entry != nullptr; ++entry) inherited.emplace_back(*entry);
  const controller::LocalCommand trainer =
      controller::TrainerCommand(job_, "evaluation", places, inherited);
  const std::vector<std::string>& words = trainer.argv;
  const std::vector<std::string> text = WordsAfter(words, "--text");
  const std::string program = std::filesystem::path(words.empty() ? "" : words[0]).filename();
  if (program != "crowdsurf-trainer" || text.empty()) return result;
  controller::ProcessOptions process{{words[0], "evaluate", "--model", ModelPath(), "--seed",
                                      std::to_string(options_.market.seed), "--text"},
                                     trainer.environment,
                                     trainer.directory};
  process.argv.insert(process.argv.end(), text.begin(), text.end());
  // With the trainer's own split: else text that it trained on would be scored as held out.
  for (const std::string& split : WordsAfter(words, "--split-seed")) {
    process.argv.insert(process.argv.end(), {"--split-seed", split});
  }
  const json told = json::parse(Output(process), nullptr, /*allow_exceptions=*/false);
  if (!told.is_object()) return result;
  result.heldout = NumberAt(told, "heldout_bits_per_char");
  result.trigram = NumberAt(told, "trigram_bits_per_char");
  result.bigram = NumberAt(told, "bigram_bits_per_char");
  result.unigram = NumberAt(told, "unigram_bits_per_char");
  const auto sample = told.find("sample");
  if (sample != told.end() && sample->is_string()) result.sample = sample->get<std::string>();
  return result;
}

std::string Session::ReportPath() const {
  return options_.report.empty() ? state_->path() + "/report.json" : options_.report;
}

bool Session::WriteReports(const Evaluation& evaluation) {
  bool all = true;
  const controller::TrainingJobStatus& status = cluster_->status();
  ReportInput input;
  input.job = job_.name;
  input.strategy = spec_.averaging.value("strategy", "");
  input.outcome = status.Is(controller::ConditionType::kSucceeded) ? "Succeeded"
                  : status.Is(controller::ConditionType::kFailed)  ? "Failed"
                  : interrupts_ > 0                                ? "Interrupted"
                                                                   : "Stopped";
  if (const auto* failed = status.Find(controller::ConditionType::kFailed)) {
    input.message = failed->message;
    // The job's message names the rule; the cause stands in the worker's own words.
    if (status.last_failure) input.message += "\n" + status.last_failure->output;
  }
  if (const auto& last = status.last_failure) {
    const std::string line = controller::FailureLine(last->reason, last->output);
    input.failure = last->worker + " " + last->reason + (line.empty() ? "" : ": " + line);
  }
  input.replicas = job_.spec.replicas;
  input.group_size = job_.spec.averaging.value("groupSize", 0);
  input.seed = options_.market.seed;
  input.market = MarketWords(options_);
  input.tensors_in_clear = job_.spec.tensors_in_clear;
  input.figures = record_.Figures();
  input.points = record_.points();
  input.lives = record_.lives();
  input.launched = record_.launched();
  input.heldout = evaluation.heldout;
  input.trigram = evaluation.trigram;
  input.bigram = evaluation.bigram;
  input.unigram = evaluation.unigram;
  input.sample = evaluation.sample;
  std::error_code error;
  if (std::filesystem::exists(ModelPath(), error)) input.model_path = ModelPath();
  const std::string page = PageOf(ReportPath());
  const std::string text = ReportJson(input).dump(1, ' ', false, json::error_handler_t::replace);
  for (const auto& [path, content] :
       {std::pair(ReportPath(), text + "\n"), {page, ReportHtml(input)}}) {
    const Status written = WriteFileAtomically(path, content);
    if (written.ok()) {
      std::printf("report     %s\n", path.c_str());
    } else {
      // The other one is still tried: half of it is better than nothing.
      run_metrics_.write_errors.Add();
      std::fprintf(stderr, "crowdsurf: %s\n", std::string(written.message()).c_str());
    }
    all = all && written.ok();
  }
  return all;
}

void Session::PrintSummary(const Evaluation& evaluation) {
  const RunFigures f = record_.Figures();
  std::error_code error;
  std::printf("\n%s: %s samples in %s, %s samples/s, goodput %s\n", job_.name.c_str(),
              Short(static_cast<double>(f.samples)).c_str(), Span(f.duration_seconds).c_str(),
              Short(f.samples_per_second).c_str(), Fixed(f.goodput, 3).c_str());
  std::printf("rounds     %llu completed, %llu repaired, %llu failed, %llu hash mismatches\n",
              static_cast<unsigned long long>(f.rounds_completed),
              static_cast<unsigned long long>(f.rounds_repaired),
              static_cast<unsigned long long>(f.rounds_failed),
              static_cast<unsigned long long>(f.hash_mismatches));
  if (f.apart_seconds > 0)
    std::printf("lineages   workers trained apart for %s: only one of their models is kept\n",
                Span(f.apart_seconds).c_str());
  std::printf("workers    %d to %d of %d, %s\n", f.workers_min, f.workers_max, job_.spec.replicas,
              PreemptionWords(f).c_str());
  std::printf("start      %s; training stopped by averaging %s of the time\n",
              Fixed(f.start_seconds, 2, " s").c_str(),
              f.averaging_stall_ratio ? Fixed(*f.averaging_stall_ratio * 100, 2, " %").c_str()
                                      : "not measured");
  if (job_.spec.tensors_in_clear) std::printf("tensors    in the clear: tls.mode is Disabled\n");
  std::printf("averaging  %s\n", AveragingWords(f.averagings).c_str());
  if (evaluation.heldout) {
    std::printf("held out   %s bits per character (trigram %s, bigram %s, unigram %s)\n",
                Fixed(evaluation.heldout, 3).c_str(), Fixed(evaluation.trigram, 3).c_str(),
                Fixed(evaluation.bigram, 3).c_str(), Fixed(evaluation.unigram, 3).c_str());
  }
  if (std::filesystem::exists(ModelPath(), error))
    std::printf("model      %s\n", ModelPath().c_str());
  if (!evaluation.sample.empty()) {
    std::printf("\nA fortune that the model made up:\n\n%s\n\n",
                Printable(evaluation.sample).c_str());
  }
}

int Session::Conclude() {
  const controller::TrainingJobStatus& status = cluster_->status();
  const bool succeeded = status.Is(controller::ConditionType::kSucceeded);
  // Past --duration without a word from the view: the time is up, and that is what was asked.
  const bool time_up =
      options_.duration && !status.finished() && interrupts_ == 0 && never_trained_.empty();
  // First: what follows may take a minute or fail, and the next run must know how this one ended.
  state_->Remember(succeeded || time_up ? RunEnd::kDone : RunEnd::kUnfinished);
  const Evaluation evaluation = Evaluate();
  PrintSummary(evaluation);
  const bool reported = WriteReports(evaluation);
  // Before the errors below, which go another way and would overtake the summary.
  std::fflush(stdout);
  if (const auto* failed = status.Find(controller::ConditionType::kFailed)) {
    std::fprintf(stderr, "\ncrowdsurf: the job failed, %s: %s\n", failed->reason.c_str(),
                 failed->message.c_str());
    if (status.last_failure && !status.last_failure->output.empty()) {
      const std::string& worker = status.last_failure->worker;
      const std::string where = options_.state_dir.empty() ? "" : " --state-dir " + state_->path();
      std::fprintf(stderr, "%s last printed:\n%s\nmore: crowdsurf logs %s %s%s\n", worker.c_str(),
                   status.last_failure->output.c_str(), job_.name.c_str(), worker.c_str(),
                   where.c_str());
    }
    return kFailed;
  }
  if (!never_trained_.empty()) {
    std::fprintf(stderr, "crowdsurf: %s\n", never_trained_.c_str());
    return kFailed;
  }
  if (!cluster_->write_error().empty()) {
    std::fprintf(stderr, "crowdsurf: trained, but not all of it is written: %s\n",
                 cluster_->write_error().c_str());
    return kFailed;
  }
  if (succeeded || time_up) return reported ? kSucceeded : kFailed;
  return interrupts_ > 0 ? kInterrupted : kFailed;
}

}  // namespace crowdsurf::cli
