#include "worker/trainer/commands.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "worker/trainer/data/ngram.h"
#include "worker/trainer/link_hook.h"
#include "worker/trainer/safetensors.h"
#include "worker/trainer/sample.h"

namespace crowdsurf::trainer {
namespace {

using Json = nlohmann::json;

class SteadyClock : public StepClock {
 public:
  Time Now() override {
    return Time::FromNanoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now().time_since_epoch())
                                     .count());
  }
  void SleepUntil(Time until) override {
    std::this_thread::sleep_until(
        std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until.nanoseconds())));
  }
};

class PrintedProgress : public ProgressSink {
 public:
  void OnProgress(const Progress& p) override {
    std::printf("step %llu  loss %.4f  samples %llu  %.0f samples/s\n",
                static_cast<unsigned long long>(p.step), p.loss,
                static_cast<unsigned long long>(p.samples),
                static_cast<double>(p.samples) / std::max(1e-9, p.seconds));
    // In a pipe stdout waits for a full block: flushed, a line is read as it is written.
    std::fflush(stdout);
  }
  void OnMetrics(const Progress& p, std::span<const Metric> metrics, Evaluation how) override {
    std::printf("step %llu  %s", static_cast<unsigned long long>(p.step),
                how == Evaluation::kFull ? "all held out:" : "held out:");
    for (const Metric& m : metrics) std::printf("  %s %.4f", m.name.c_str(), m.value);
    std::printf("  after %.1f s\n", p.seconds);
    std::fflush(stdout);
  }
};

StatusOr<std::unique_ptr<CharTask>> MakeCharTask(const TrainerOptions& options) {
  ASSIGN_OR_RETURN(const std::string text, ReadTexts(options.texts));
  ASSIGN_OR_RETURN(Corpus corpus, MakeCorpus(text, options.split_seed));
  // A wrong flag, not a broken program: so it is refused here, before the task CHECKs it.
  if (corpus.train.size() <= options.charlm.window) {
    return absl::InvalidArgumentError("--window: longer than the training text");
  }
  return std::make_unique<CharTask>(std::move(corpus), options.charlm);
}

StatusOr<std::unique_ptr<DigitTask>> MakeDigitTask(const TrainerOptions& options,
                                                   const std::string& worker) {
  Digits digits = MakeDigits(options.digits);
  if (options.shards > 1) {
    const auto shard = options.shard ? options.shard : WorkerIndexOf(worker);
    if (!shard) {
      return absl::InvalidArgumentError(
          "--shard: missing, and CROWDSURF_WORKER does not end in -INDEX-INCARNATION");
    }
    // Indices above the shards begin again, so every further worker has one, too.
    digits.train = ShardByLabel(digits.train, *shard % options.shards, options.shards);
  }
  return std::make_unique<DigitTask>(std::move(digits.train), std::move(digits.held_out),
                                     options.mlp);
}

Status WriteJson(const std::string& path, const Json& json) {
  std::ofstream out(path, std::ios::trunc);
  // A made-up text may be no UTF-8.
  out << json.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
  out.flush();
  if (!out) return absl::UnavailableError(absl::StrCat("write ", path, ": failed"));
  return absl::OkStatus();
}

// What only a language model has at the end: the counting models beside it, and a fortune.
void DescribeText(CharTask& task, const Training& training, const TrainerOptions& options,
                  Json& summary) {
  const NgramBits ngram = HeldOutNgramBits(task.corpus());
  std::printf(
      "held-out bits per character of counting models: unigram %.4f  bigram %.4f  "
      "trigram %.4f\n",
      ngram.unigram, ngram.bigram, ngram.trigram);
  summary["unigram_bits_per_char"] = ngram.unigram;
  summary["bigram_bits_per_char"] = ngram.bigram;
  summary["trigram_bits_per_char"] = ngram.trigram;
  if (!options.wants_sample) return;
  const std::string text =
      MakeUpFortune(task.model(), training.parameters(), task.corpus().vocabulary, options.sample,
                    options.training.seed);
  std::printf("a fortune it made up:\n%s\n", text.c_str());
  summary["sample"] = text;
}

Status Conclude(const Training& training, Task& task, CharTask* text, const TrainerOptions& options,
                const LoopResult& result) {
  Json summary = {{"seed", training.seed()},
                  {"parameters", task.table().elements()},
                  {"steps", result.progress.own_steps},
                  {"samples", result.progress.samples},
                  {"seconds", result.progress.seconds}};
  for (const Metric& m : result.metrics) summary[m.name] = m.value;
  if (text != nullptr) DescribeText(*text, training, options, summary);
  if (!options.save.empty()) {
    RETURN_IF_ERROR(
        WriteSafetensors(options.save, task.table(), training.parameters(), task.Metadata()));
    std::printf("wrote %s\n", options.save.c_str());
  }
  return options.json.empty() ? absl::OkStatus() : WriteJson(options.json, summary);
}

// The agent starts beside us: it may take this long to answer, and to come back when it was killed.
constexpr Duration kAgentPatience = Seconds(60);

StatusOr<std::unique_ptr<StepHook>> MakeHook(Training& training,
                                             const TrainerEnvironment& environment) {
  if (environment.dir.empty()) return std::make_unique<StepHook>();
  std::vector<std::string> names;
  // Only for the names: the agent wants them at the registration.
  for (const Metric& m : training.task().Evaluate(training.parameters(), Evaluation::kQuick)) {
    names.push_back(m.name);
  }
  return LinkHook::Connect(environment.dir, std::move(names), kAgentPatience);
}

int Train(Task& task, CharTask* text, const TrainerOptions& options,
          const TrainerEnvironment& environment, const volatile int* interrupt) {
  if (!options.load.empty() && !environment.dir.empty())
    return ReportFailure(absl::InvalidArgumentError(
        "--load: a worker of a job starts from the job's seed, or from its state"));
  TrainingOptions training_options = options.training;
  training_options.worker = environment.worker;
  Training training(task, training_options);
  if (!options.load.empty()) {
    const auto file = ReadSafetensors(options.load);
    if (!file.ok()) return ReportFailure(file.status());
    const auto flat = ParametersFrom(*file, task.table());
    if (!flat.ok()) return ReportFailure(flat.status());
    std::copy(flat->begin(), flat->end(), training.parameters().begin());
  }
  std::printf("%zu parameters\n", task.table().elements());
  const auto hook = MakeHook(training, environment);
  if (!hook.ok()) return ReportFailure(hook.status());
  LoopOptions loop = options.loop;
  loop.on_start = environment.on_start;
  // In a job the averaged model is evaluated, once, from its file; here only what is quick.
  if (!environment.dir.empty()) {
    loop.at_end = Evaluation::kQuick;
    text = nullptr;
  }
  SteadyClock clock;
  PrintedProgress progress;
  const auto result = RunTraining(training, loop, {**hook, clock, progress, interrupt});
  if (!result.ok()) return ReportFailure(result.status());
  if (const Status s = Conclude(training, task, text, options, *result); !s.ok())
    return ReportFailure(s);
  // As a shell says it (docs/trainer.md).
  return result->interrupted ? 128 + *interrupt : 0;
}

}  // namespace

int ReportFailure(const Status& status) {
  std::fflush(stdout);  // in a pipe it would come behind the error, and be taken for it
  std::fprintf(stderr, "crowdsurf-trainer: %s\n", std::string(status.message()).c_str());
  const bool configuration = absl::IsInvalidArgument(status) || absl::IsNotFound(status);
  return configuration ? 2 : 1;
}

int RunCommand(const TrainerOptions& options, const TrainerEnvironment& environment,
               const volatile int* interrupt) {
  switch (options.command) {
    case Command::kCharlm: {
      const auto task = MakeCharTask(options);
      if (!task.ok()) return ReportFailure(task.status());
      const Corpus& corpus = (*task)->corpus();
      std::printf("text: %zu characters to train on, %zu held out, %zu different\n",
                  corpus.train.size(), corpus.held_out_tokens(), corpus.vocabulary.size());
      return Train(**task, task->get(), options, environment, interrupt);
    }
    case Command::kMlp: {
      const auto task = MakeDigitTask(options, environment.worker);
      if (!task.ok()) return ReportFailure(task.status());
      return Train(**task, nullptr, options, environment, interrupt);
    }
    case Command::kEvaluate:
      return Evaluate(options);
    case Command::kSample:
      return MakeSample(options);
  }
  return 1;
}

}  // namespace crowdsurf::trainer
