#include "bench/training/runs.h"

#include <absl/strings/str_cat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/bytes.h"
#include "base/digest.h"

namespace crowdsurf::bench {

std::string BriefOf(const std::string& input) { return Sha256(AsBytes(input)).brief(); }

StatusOr<Runs> Runs::Open(const std::string& path, const std::string& stamp, unsigned threads) {
  Runs runs(path, stamp, threads);
  std::error_code ignored;  // the file tells
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  std::ifstream in(path);
  bool whole = true;  // the last line
  for (std::string line; std::getline(in, line);) {
    whole = !in.eof();
    // The last line of a bench that was killed may be half a line.
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || json.value("stamp", "") != stamp) continue;
    runs.done_[json.value("key", "")] = json.value("outcome", Outcome());
  }
  std::ofstream out(path, std::ios::app);
  // A line of its own for what comes next, after half a line.
  if (!whole) out << '\n';
  if (!out.flush()) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return runs;
}

void Runs::Keep(const std::string& key, const Outcome& outcome) {
  done_[key] = outcome;
  ++made_;
  // Opened for each: what is written survives the end of the bench.
  std::ofstream(path_, std::ios::app)
      << nlohmann::json{{"stamp", stamp_}, {"key", key}, {"outcome", outcome}}.dump() << '\n';
}

void Runs::Do(const std::vector<RunSpec>& specs) {
  std::mutex mutex;
  std::atomic<size_t> next{0};
  const auto work = [&] {
    // In the order of the specs, each taken once.
    for (size_t i = next++; i < specs.size(); i = next++) {
      {
        const std::scoped_lock lock(mutex);
        if (done_.contains(specs[i].key)) continue;
      }
      const Outcome outcome = specs[i].run();
      const std::scoped_lock lock(mutex);
      Keep(specs[i].key, outcome);
    }
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads_; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace crowdsurf::bench
