#include "worker/trainer/options.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <utility>

namespace crowdsurf::trainer {
namespace {

// Flags whose text needs more than CLI11's own conversion.
struct RawOptions {
  std::string optimizer = "adam";
  std::string schedule = "constant";
  std::string step_time = "0";
  std::string seconds = "0";
  std::string hidden = "64,64";
  std::string shard;
};

// Default rates, found by the sweep in docs/trainer.md.
constexpr double kCharlmRate = 0.008;
constexpr double kMlpRate = 0.002;

void AddTraining(CLI::App& app, TrainerOptions& o, RawOptions& raw) {
  app.add_option("--steps", o.loop.steps, "steps of this process; 0: until told to stop");
  app.add_option("--seconds", raw.seconds, "end after this long; 0: no limit");
  app.add_option("--seed", o.training.seed, "first parameters and data order")
      ->capture_default_str();
  app.add_option("--step-time", raw.step_time, "a step takes at least this long (100ms)");
  app.add_option("--optimizer", raw.optimizer, "adam, sgd or lamb")->capture_default_str();
  app.add_option("--lr", o.training.schedule.rate, "learning rate")->capture_default_str();
  app.add_option("--schedule", raw.schedule, "constant or cosine")->capture_default_str();
  app.add_option("--warmup", o.training.schedule.warmup_steps, "steps")->capture_default_str();
  app.add_option("--schedule-steps", o.training.schedule.total_steps,
                 "where the cosine ends; default: --steps");
  app.add_option("--momentum", o.training.optimizer.momentum, "sgd")->capture_default_str();
  app.add_flag("--nesterov", o.training.optimizer.nesterov, "sgd");
  app.add_option("--beta1", o.training.optimizer.beta1, "adam, lamb")->capture_default_str();
  app.add_option("--beta2", o.training.optimizer.beta2, "adam, lamb")->capture_default_str();
  app.add_option("--weight-decay", o.training.optimizer.weight_decay)->capture_default_str();
  app.add_option("--clip", o.training.clip, "most length of a gradient; 0: any")
      ->capture_default_str();
  app.add_option("--evaluate-every", o.loop.evaluate_every, "steps; 0: only at the end")
      ->capture_default_str();
  app.add_option("--report-every", o.loop.report_every, "steps; 0: no progress lines")
      ->capture_default_str();
  app.add_option("--load", o.load, "model.safetensors to start from");
  app.add_option("--save", o.save, "model.safetensors to write at the end");
  app.add_option("--json", o.json, "file for a summary in JSON");
}

void AddText(CLI::App& app, TrainerOptions& o) {
  app.add_option("--text", o.texts, "text files or directories of them")->expected(1, 1000);
  app.add_option("--split-seed", o.split_seed, "which tenth is held out")->capture_default_str();
}

void AddCharlm(CLI::App& app, TrainerOptions& o, RawOptions& raw) {
  AddText(app, o);
  app.add_option("--hidden", o.charlm.hidden, "units of the recurrent layer")
      ->capture_default_str();
  app.add_option("--batch", o.charlm.batch, "windows a step")->capture_default_str();
  app.add_option("--window", o.charlm.window, "characters of a window")->capture_default_str();
  // The flag alone asks for a fortune without a given beginning.
  app.add_option("--sample", o.sample, "at the end, make up a fortune that begins so")
      ->expected(0, 1);
  AddTraining(app, o, raw);
}

void AddMlp(CLI::App& app, TrainerOptions& o, RawOptions& raw) {
  app.add_option("--hidden", raw.hidden, "widths of the hidden layers")->capture_default_str();
  app.add_option("--batch", o.mlp.batch, "examples a step")->capture_default_str();
  app.add_option("--examples", o.digits.train, "training examples")->capture_default_str();
  app.add_option("--noise", o.digits.noise, "standard deviation")->capture_default_str();
  app.add_option("--data-seed", o.digits.seed, "of the data set")->capture_default_str();
  app.add_option("--shards", o.shards, "label-sorted shards; 1: everybody sees everything")
      ->capture_default_str();
  app.add_option("--shard", raw.shard, "this worker's; default: the index in CROWDSURF_WORKER");
  AddTraining(app, o, raw);
}

// Collects violations; each line names the flag, what it is and what is allowed.
class Violations {
 public:
  template <class T>
  void Within(const char* flag, T value, T least, T most) {
    // A NaN is within nothing.
    if (value >= least && value <= most) return;
    lines_.push_back(absl::StrCat(flag, ": ", value, " is not in ", least, "..", most));
  }
  void Add(std::string line) { lines_.push_back(std::move(line)); }
  Status ToStatus() const {
    if (lines_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(lines_, "\n"));
  }

 private:
  std::vector<std::string> lines_;
};

void CheckTraining(TrainerOptions& o, const RawOptions& raw, Violations& wrong) {
  const auto duration = [&](const char* flag, const std::string& text, Duration& out) {
    if (const auto parsed = ParseDuration(text)) {
      out = *parsed;
    } else {
      wrong.Add(absl::StrCat(flag, ": \"", text, "\" is not a duration like 100ms, 1.5s or 2m"));
    }
  };
  duration("--step-time", raw.step_time, o.loop.step_time);
  duration("--seconds", raw.seconds, o.loop.duration);
  if (o.loop.duration == Duration()) o.loop.duration = Duration::Infinite();
  if (const auto kind = OptimizerKindNamed(raw.optimizer)) {
    o.training.optimizer.kind = *kind;
  } else {
    wrong.Add(absl::StrCat("--optimizer: \"", raw.optimizer, "\" is not adam, sgd or lamb"));
  }
  Schedule& schedule = o.training.schedule;
  if (const auto kind = ScheduleKindNamed(raw.schedule)) {
    schedule.kind = *kind;
  } else {
    wrong.Add(absl::StrCat("--schedule: \"", raw.schedule, "\" is not constant or cosine"));
  }
  if (schedule.total_steps == 0) schedule.total_steps = o.loop.steps;
  if (schedule.kind == ScheduleKind::kCosine && schedule.total_steps == 0) {
    wrong.Add("--schedule: cosine needs --schedule-steps or --steps");
  }
  wrong.Within("--lr", schedule.rate, 1e-9, 1e3);
  wrong.Within("--momentum", o.training.optimizer.momentum, 0.0, 0.9999);
  wrong.Within("--beta1", o.training.optimizer.beta1, 0.0, 0.999999);
  wrong.Within("--beta2", o.training.optimizer.beta2, 0.0, 0.999999);
  wrong.Within("--weight-decay", o.training.optimizer.weight_decay, 0.0, 1.0);
  wrong.Within("--clip", o.training.clip, 0.0, 1e9);
}

void CheckText(const TrainerOptions& o, Violations& wrong) {
  if (o.texts.empty()) {
    wrong.Add(
        "--text: missing; name a text file or a directory of them, for example "
        "/usr/share/games/fortunes (Debian package fortunes)");
  }
}

void CheckMlp(TrainerOptions& o, const RawOptions& raw, Violations& wrong) {
  constexpr size_t kMaxWidth = 4096, kMaxLayers = 8;
  o.mlp.hidden.clear();
  const std::vector<std::string> parts = absl::StrSplit(raw.hidden, ',', absl::SkipEmpty());
  for (const std::string& part : parts) {
    size_t width = 0;
    if (!absl::SimpleAtoi(part, &width) || width < 1 || width > kMaxWidth) {
      wrong.Add(absl::StrCat("--hidden: \"", part, "\" is not a width in 1..", kMaxWidth));
    }
    o.mlp.hidden.push_back(width);
  }
  wrong.Within("--hidden (layers)", o.mlp.hidden.size(), size_t{0}, kMaxLayers);
  wrong.Within("--batch", o.mlp.batch, size_t{1}, size_t{4096});
  wrong.Within("--examples", o.digits.train, size_t{100}, size_t{1'000'000});
  wrong.Within("--noise", o.digits.noise, 0.0, 100.0);
  // More shards than examples would leave a worker with nothing to train on.
  wrong.Within("--shards", o.shards, size_t{1}, o.digits.train);
  // Then the worker's name tells it, once the environment is known (commands.cc).
  if (raw.shard.empty()) return;
  size_t shard = 0;
  if (!absl::SimpleAtoi(raw.shard, &shard) || shard >= o.shards) {
    wrong.Add(absl::StrCat("--shard: \"", raw.shard, "\" is not below --shards ", o.shards));
  }
  o.shard = shard;
}

Status Check(TrainerOptions& o, const RawOptions& raw) {
  Violations wrong;
  switch (o.command) {
    case Command::kCharlm:
      CheckText(o, wrong);
      wrong.Within("--hidden", o.charlm.hidden, size_t{1}, size_t{2048});
      wrong.Within("--batch", o.charlm.batch, size_t{1}, size_t{4096});
      wrong.Within("--window", o.charlm.window, size_t{1}, size_t{1024});
      CheckTraining(o, raw, wrong);
      break;
    case Command::kMlp:
      CheckMlp(o, raw, wrong);
      CheckTraining(o, raw, wrong);
      break;
    case Command::kEvaluate:
      CheckText(o, wrong);
      [[fallthrough]];
    case Command::kSample:
      if (o.model.empty()) wrong.Add("--model: missing; name a model.safetensors");
      break;
  }
  return wrong.ToStatus();
}

}  // namespace

StatusOr<std::optional<TrainerOptions>> ParseOptions(int argc, const char* const* argv) {
  TrainerOptions o;
  RawOptions raw;
  CLI::App app("Trains a small model, alone or as a worker of a Crowdsurf job (CROWDSURF_DIR set).",
               "crowdsurf-trainer");
  app.require_subcommand(1);
  bool portable = false;  // acted on before options are read (trainer_main.cc)
  app.add_flag("--portable", portable, "keep to baseline instructions (see docs/trainer.md)");
  CLI::App* charlm = app.add_subcommand("charlm", "character-level language model on any text");
  CLI::App* mlp = app.add_subcommand("mlp", "classifier on synthetic 8 x 8 digits");
  CLI::App* evaluate = app.add_subcommand("evaluate", "held-out figures of a model file, as JSON");
  CLI::App* sample = app.add_subcommand("sample", "make up a fortune from a model file");
  // Before the flags are added, which show it as their default.
  o.training.schedule.warmup_steps = 50;
  o.training.schedule.rate = kCharlmRate;
  AddCharlm(*charlm, o, raw);
  for (CLI::App* sub : {evaluate, sample}) {
    sub->add_option("--model", o.model, "model.safetensors");
    AddText(*sub, o);
    sub->add_option("--seed", o.training.seed, "of the sample")->capture_default_str();
    sub->add_option("--sample", o.sample, "beginning of the fortune");
  }
  o.training.schedule.rate = kMlpRate;
  AddMlp(*mlp, o, raw);
  // CLI11 throws for --help as well. Its Success is a ParseError, so it is caught first.
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    app.exit(help);
    return std::optional<TrainerOptions>();
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  o.wants_sample = charlm->count("--sample") > 0;
  if (mlp->parsed()) o.command = Command::kMlp;
  if (charlm->count("--lr") == 0 && !mlp->parsed()) o.training.schedule.rate = kCharlmRate;
  if (evaluate->parsed()) o.command = Command::kEvaluate;
  if (sample->parsed()) o.command = Command::kSample;
  RETURN_IF_ERROR(Check(o, raw));
  return std::optional<TrainerOptions>(std::move(o));
}

std::optional<Duration> ParseDuration(std::string_view text) {
  double unit = 1;
  const auto has = [&](std::string_view suffix, double seconds) {
    if (!text.ends_with(suffix)) return false;
    text.remove_suffix(suffix.size());
    unit = seconds;
    return true;
  };
  // "ms" first: it ends like "s".
  if (!has("ms", 1e-3) && !has("s", 1) && !has("m", 60)) has("h", 3600);
  double value = 0;
  if (!absl::SimpleAtod(std::string(text), &value) || !(value >= 0)) return std::nullopt;
  return Seconds(value * unit);
}

std::optional<size_t> WorkerIndexOf(std::string_view worker) {
  const std::vector<std::string> parts = absl::StrSplit(std::string(worker), '-');
  size_t index = 0, incarnation = 0;
  // From the end, because a job's name may have hyphens.
  if (parts.size() < 3 || !absl::SimpleAtoi(parts[parts.size() - 2], &index) ||
      !absl::SimpleAtoi(parts.back(), &incarnation)) {
    return std::nullopt;
  }
  return index;
}

}  // namespace crowdsurf::trainer
