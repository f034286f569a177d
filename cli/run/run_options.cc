#include "cli/run/run_options.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/edge/files.h"
#include "operator/core/job/json_path.h"

namespace crowdsurf::cli {
namespace {

constexpr size_t kMaxTrace = 64 << 20;  // bytes
constexpr double kMaxSpeed = 1e6;

// One word is a manifest, unless it is a program; several are a command.
void TakeWords(const std::vector<std::string>& words, RunOptions& options,
               std::vector<std::string>& problems) {
  const auto is_manifest = [](const std::string& word) {
    return word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json");
  };
  const auto is_program = [](const std::string& word) {
    std::error_code error;
    return std::filesystem::is_regular_file(word, error) && access(word.c_str(), X_OK) == 0;
  };
  if (words.size() > 1 && is_manifest(words[0])) {
    problems.push_back(words[1] + ": a run has one manifest, or a command behind --");
    options.manifest = words[0];
  } else if (words.size() == 1 && (is_manifest(words[0]) || !is_program(words[0]))) {
    options.manifest = words[0];
  } else {
    options.command = words;
  }
}

void TakeSamples(const RunFlags& flags, RunOptions& options, std::vector<std::string>& problems) {
  options.samples = flags.samples;
  if (flags.samples && !flags.duration.empty()) {
    problems.push_back("--samples: cannot go together with --duration");
  } else if (flags.samples == 0u) {
    problems.push_back("--samples: is zero");
  }
}

// Why the report cannot be written there; empty: it can, as far as can be seen.
std::string ReportProblem(const std::string& report) {
  namespace fs = std::filesystem;
  std::error_code error;
  // Report and page would be one file, and the second write would end the first.
  if (PageOf(report) == report) {
    return report + " is the name of the page; end the report's with .json";
  }
  for (const std::string& file : {report, PageOf(report)}) {
    if (fs::path(file).filename().empty() || fs::is_directory(file, error)) {
      return file + " is a folder; name a file in it";
    }
  }
  fs::path folder = fs::path(report).parent_path();
  if (folder.empty()) folder = ".";
  const bool other = fs::exists(folder, error) && !fs::is_directory(folder, error);
  if (!other && access(folder.c_str(), W_OK | X_OK) == 0) return {};
  // Nothing has touched errno since access.
  return absl::StrCat("cannot write into ", folder.string(), ": ",
                      std::strerror(other ? ENOTDIR : errno));
}

void TakeReport(const std::string& report, RunOptions& options,
                std::vector<std::string>& problems) {
  options.report = report;
  const std::string problem = report.empty() ? "" : ReportProblem(report);
  if (!problem.empty()) problems.push_back("--report: " + problem);
}

void TakeCount(const std::string& count, RunOptions& options, std::vector<std::string>& problems) {
  if (count == "all") {
    options.market.count = 0;
    return;
  }
  const char* end = count.data() + count.size();
  const auto [at, error] = std::from_chars(count.data(), end, options.market.count);
  if (error != std::errc() || at != end || options.market.count < 1) {
    problems.push_back("--preempt-count: " + count + " is neither a number from 1 nor all");
  }
}

}  // namespace

double HangAfter(const RunOptions& options, const controller::TrainingJobSpec& spec) {
  if (options.hang_after) return options.hang_after->infinite() ? 0 : options.hang_after->seconds();
  const nlohmann::json* seconds = controller::Member(&spec.agent, "hangAfterSeconds");
  return seconds != nullptr ? seconds->get<double>() : kHangAfter;
}

std::string PageOf(const std::string& report) {
  return std::filesystem::path(report).replace_extension(".html").string();
}

StatusOr<Duration> ParseDuration(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  const double scale = unit == "ms"                  ? 1e-3
                       : unit.empty() || unit == "s" ? 1
                       : unit == "m"                 ? 60
                       : unit == "h"                 ? 3600
                                                     : 0;
  if (error != std::errc() || scale == 0 || !std::isfinite(number) || number < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(text, " is not a duration such as 5s, 100ms, 2m or 1h"));
  }
  return Seconds(number * scale);
}

RunOptions CheckFlags(const RunFlags& flags, std::vector<std::string>& problems) {
  RunOptions options;
  const auto duration = [&](const char* name, const std::string& text,
                            std::optional<Duration>& into) {
    if (text.empty()) return;
    const StatusOr<Duration> parsed = ParseDuration(text);
    // Zero would mean never, at once or for ever, depending on the flag; `none` says it.
    if (!parsed.ok() || *parsed == Duration()) {
      problems.push_back(absl::StrCat(
          name, ": ", parsed.ok() ? "is zero" : std::string(parsed.status().message())));
    } else {
      into = *parsed;
    }
  };
  TakeWords(flags.words, options, problems);
  TakeSamples(flags, options, problems);
  duration("--duration", flags.duration, options.duration);
  duration("--preempt-every", flags.preempt_every, options.market.every);
  if (flags.notice != "none") duration("--notice", flags.notice, options.notice);
  const bool never = flags.hang_after == "none";
  if (never) options.hang_after = Duration::Infinite();
  if (!never) duration("--hang-after", flags.hang_after, options.hang_after);
  // Trainers are looked at twice a second; a step may take as long as that.
  if (options.hang_after && *options.hang_after < Seconds(1)) {
    problems.push_back("--hang-after: is below 1s");
  }
  if (flags.http_port && (*flags.http_port < 0 || *flags.http_port > 65535)) {
    problems.push_back(absl::StrCat("--http-port: ", *flags.http_port,
                                    " is not a port (1..65535; 0: no status page)"));
  }
  options.http_port = flags.http_port;
  if (flags.workers && *flags.workers < 1) {
    problems.push_back(absl::StrCat("--workers: ", *flags.workers, " is below 1"));
  } else {
    options.workers = flags.workers;  // a bad one is not told again as the manifest's replicas
  }
  options.strategy = flags.strategy;
  options.market.seed = flags.seed;
  options.market.speed = flags.speed;
  if (!(flags.speed > 0 && flags.speed <= kMaxSpeed)) {  // NaN fails as well
    problems.push_back("--speed: is not above 0 and at most 1000000");
  }
  TakeCount(flags.preempt_count, options, problems);
  if (!flags.preempt_trace.empty() && !flags.preempt_every.empty()) {
    problems.push_back("--preempt-trace: cannot go together with --preempt-every");
  }
  if (!flags.preempt_trace.empty()) {
    const auto text = ReadFile(flags.preempt_trace, kMaxTrace);
    auto trace = text.ok() ? ParseTrace(*text) : text.status();
    if (trace.ok()) {
      options.market.trace = std::move(*trace);
    } else {
      const std::string where = text.ok() ? flags.preempt_trace + ": " : "";
      problems.push_back(absl::StrCat("--preempt-trace: ", where, trace.status().message()));
    }
  }
  options.state_dir = flags.state_dir;
  TakeReport(flags.report, options, problems);
  options.fresh = flags.fresh;
  return options;
}

}  // namespace crowdsurf::cli
