// Prints the figures of the papers on real gradients in virtual time, ours beside those of others.
//
// Deterministic under --seed: no network. Runs are kept in a file as they end, and a bench that was
// stopped goes on there. Flat JSON with --json. What is compared and from where: the headers of
// bench/papers.
#include <absl/strings/str_cat.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/status.h"
#include "bench/papers/acid_papers.h"
#include "bench/papers/churn_papers.h"
#include "bench/papers/diloco_papers.h"
#include "bench/papers/figures.h"
#include "bench/papers/moshpit_papers.h"
#include "bench/papers/power_papers.h"
#include "bench/papers/relay_papers.h"
#include "bench/papers/speed_papers.h"
#include "bench/papers/subnet_papers.h"
#include "bench/training/runs.h"
#include "bench/training/spot_trace.h"
#include "worker/trainer/data/corpus.h"

namespace crowdsurf::bench {
namespace {

std::string TextOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}

// Outcomes are compared only with those of the same program.
std::string StampOfThisProgram() { return Sha256(AsBytes(TextOf("/proc/self/exe"))).hex(); }

int Fail(const Status& why, int code) {
  std::fprintf(stderr, "papers: %s\n", std::string(why.message()).c_str());
  return code;
}

struct Part {
  const char* name;
  void (*run)(const PapersOptions&, Runs&, Figures&);
};
constexpr Part kParts[] = {
    {"speed", SpeedPapers},     {"relaysum", RelayPapers},    {"a2cid2", AcidPapers},
    {"moshpit", MoshpitPapers}, {"powergossip", PowerPapers}, {"churn", ChurnPapers},
    {"diloco", DiLoCoPapers},   {"ist", SubnetPapers},        {"ist.time", SubnetTimePapers}};

std::vector<std::string> NamesOfParts() {
  std::vector<std::string> names;
  for (const Part& part : kParts) names.push_back(part.name);
  return names;
}

struct InputFiles {
  std::string trace;
  std::string text = "/usr/share/games/fortunes";
};

// NotFound, InvalidArgument: what is wrong with which file.
Status ReadInputs(const InputFiles& files, PapersOptions& options) {
  if (!files.trace.empty()) {
    options.trace = TextOf(files.trace);
    // Only whether it is one; each part has its own speed for it.
    const auto trace = ParseSpotTrace(options.trace, 1);
    if (!trace.ok())
      return absl::InvalidArgumentError(absl::StrCat(files.trace, ": ", trace.status().message()));
  }
  if (files.text.empty()) return absl::OkStatus();
  const auto text = trainer::ReadTexts({files.text});
  if (!text.ok()) return text.status();
  options.text = *text;
  return trainer::MakeCorpus(options.text, kSplitSeed).status();
}

int Main(int argc, char** argv) {
  CLI::App app("The claims of the papers on real gradients");
  bool json = false, brief = false, thorough = false;
  PapersOptions options;
  InputFiles files;
  unsigned threads = std::thread::hardware_concurrency();  // 0 where nobody knows
  std::string state = "build/papers/runs.jsonl";
  std::vector<std::string> only;
  app.add_flag("--json", json, "flat JSON, keys as in the issue");
  auto* const short_runs = app.add_flag("--short", brief, "25 minutes on two cores");
  app.add_flag(
         "--wide", options.wide,
         "short runs of all sizes, graphs and losses that relaysum and a2cid2 have with --long")
      ->needs(short_runs);
  app.add_flag("--long", thorough, "all of it: hours (the default)")->excludes("--short");
  app.add_option("--only", only, "parts")->delimiter(',')->check(CLI::IsMember(NamesOfParts()));
  app.add_option("--trace", files.trace,
                 "a spot trace for moshpit and churn: lines of milliseconds,add|remove,node")
      ->check(CLI::ExistingFile);
  app.add_option("--text", files.text,
                 "what powergossip's language model reads; empty: leave it out")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "first seed")->capture_default_str();
  app.add_option("--threads", threads, "runs at once")->capture_default_str();
  app.add_option("--state", state, "file of runs that are done")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (brief) options.length = Length::kShort;
  // Inputs are judged before any run begins.
  if (const Status read = ReadInputs(files, options); !read.ok()) return Fail(read, 2);
  auto runs = Runs::Open(state, StampOfThisProgram(), std::max(1U, threads));
  if (!runs.ok()) return Fail(runs.status(), 1);
  Figures figures;
  figures.quiet = json;
  for (const Part& part : kParts) {
    if (only.empty() || std::find(only.begin(), only.end(), part.name) != only.end())
      part.run(options, *runs, figures);
  }
  figures.Add("seed", static_cast<double>(options.seed), "");
  if (json) std::printf("%s\n", nlohmann::json(figures.values).dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace crowdsurf::bench

int main(int argc, char** argv) { return crowdsurf::bench::Main(argc, argv); }
