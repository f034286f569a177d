#include "cli/logs/local_logs.h"

#include <poll.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "cli/logs/log_reader.h"
#include "cli/run/state_dir.h"

namespace crowdsurf::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kFilesLook_ms = 200;

std::string WorkersOf(const std::string& state_dir) { return state_dir + "/workers"; }

// Of every job, in no order.
std::vector<WorkerName> AllThere(const std::string& state_dir) {
  std::vector<WorkerName> there;
  std::error_code error;
  for (fs::directory_iterator at(WorkersOf(state_dir), error), end; !error && at != end;
       at.increment(error)) {
    const auto name = ParseWorkerName(at->path().filename().string());
    if (name) there.push_back(*name);
  }
  return there;
}

std::vector<WorkerName> WorkersThere(const std::string& state_dir, const std::string& job) {
  std::vector<WorkerName> there = AllThere(state_dir);
  std::erase_if(there, [&](const WorkerName& name) { return name.job != job; });
  return there;
}

Status NoneThere(const std::string& state_dir, const std::string& job) {
  std::set<std::string> jobs;
  for (const WorkerName& name : AllThere(state_dir)) jobs.insert(name.job);
  const std::string others =
      jobs.empty() ? "" : "; there are some of " + Listed({jobs.begin(), jobs.end()});
  return absl::NotFoundError("no worker of " + job + " has started in " + state_dir + others);
}

std::string FolderOf(const std::string& state_dir, const WorkerName& name) {
  return WorkersOf(state_dir) + "/" + name.text();
}

// The agent's folder is there while a worker lives: its keys do not outlive it
// (operator/edge/local/local_pod.h).
bool Lives(const std::string& folder) {
  std::error_code error;
  return fs::exists(folder + "/agent", error);
}

// A moment before, its folder is empty: as that of one that has ended without a word.
bool HasBegun(const std::string& folder) {
  std::error_code error;
  return Lives(folder) || fs::exists(folder + "/agent.log", error);
}

// One worker's log on its way to the printer.
class Tailed {
 public:
  Tailed(const std::string& state_dir, WorkerName name, const LogsOptions& options)
      : name_(std::move(name)),
        folder_(FolderOf(state_dir, name_)),
        tail_(options.tail),
        reader_(folder_ + (options.of == LogOf::kAgent ? "/agent.log" : "/trainer.log")) {}

  // Prints what is new; true: something was.
  StatusOr<bool> Print(LinePrinter& printer) {
    ASSIGN_OR_RETURN(const std::string text, reader_.Read());
    lines_.Take(LastLines(text, tail_), Into(printer));
    tail_ = -1;
    return !text.empty();
  }
  void End(LinePrinter& printer) { lines_.End(Into(printer)); }
  bool lives() const { return Lives(folder_); }

 private:
  std::function<void(const std::string&)> Into(LinePrinter& printer) const {
    return [this, &printer](const std::string& line) {
      printer.Print(name_.text(), name_.index, line);
    };
  }

  const WorkerName name_;
  const std::string folder_;
  int tail_;  // lines of what comes next; negative: all
  LogReader reader_;
  LogLines lines_;
};

// Follows the workers of a run, and those that come while it runs.
class Follower {
 public:
  Follower(const LogsOptions& options, const std::string& state_dir, LinePrinter& printer)
      : options_(options), state_dir_(state_dir), printer_(printer) {}

  Status Run(const std::vector<WorkerName>& chosen) {
    for (const WorkerName& name : chosen) Begin(name, options_);
    while (printer_.error() == 0) {
      // Asked before the look: what was printed until then is seen by it.
      const bool runs = StateDir::InUse(state_dir_);
      if (options_.worker.empty() && options_.which == Which::kNewest) BeginNewcomers();
      ASSIGN_OR_RETURN(const bool news, Look(runs));
      if (logs_.empty() && (!runs || !options_.worker.empty())) break;
      if (!news) poll(nullptr, 0, kFilesLook_ms);
    }
    return absl::OkStatus();
  }

 private:
  void Begin(const WorkerName& name, const LogsOptions& options) {
    newest_[name.index] = std::max(newest_[name.index], name.incarnation);
    logs_.push_back(std::make_unique<Tailed>(state_dir_, name, options));
  }

  void BeginNewcomers() {
    LogsOptions whole = options_;
    whole.tail = -1;
    std::vector<WorkerName> there = WorkersThere(state_dir_, options_.job);
    std::sort(there.begin(), there.end());  // of two of an index both come
    for (const WorkerName& name : there) {
      const auto known = newest_.find(name.index);
      if (known != newest_.end() && known->second >= name.incarnation) continue;
      if (HasBegun(FolderOf(state_dir_, name))) Begin(name, whole);
    }
  }

  // Forgets the logs that have ended. True: something was printed.
  StatusOr<bool> Look(bool runs) {
    bool news = false;
    for (auto at = logs_.begin(); at != logs_.end();) {
      const bool lives = runs && (*at)->lives();
      ASSIGN_OR_RETURN(const bool printed, (*at)->Print(printer_));
      news = news || printed;
      if (!lives && !printed) {
        (*at)->End(printer_);
        at = logs_.erase(at);
      } else {
        ++at;
      }
    }
    return news;
  }

  const LogsOptions& options_;
  const std::string& state_dir_;
  LinePrinter& printer_;
  std::map<int, int> newest_;  // index -> highest incarnation that was begun
  std::vector<std::unique_ptr<Tailed>> logs_;
};

}  // namespace

bool HasLocalLogs(const std::string& state_dir) {
  std::error_code error;
  return fs::is_directory(WorkersOf(state_dir), error);
}

Status PrintLocalLogs(const LogsOptions& options, const std::string& state_dir,
                      LinePrinter& printer) {
  std::vector<WorkerName> there = WorkersThere(state_dir, options.job);
  if (there.empty()) return NoneThere(state_dir, options.job);
  ASSIGN_OR_RETURN(const std::vector<WorkerName> chosen,
                   ChooseWorkers(std::move(there), options.worker, options.which));
  if (options.follow == Follow::kYes) return Follower(options, state_dir, printer).Run(chosen);
  for (const WorkerName& name : chosen) {
    Tailed log(state_dir, name, options);
    RETURN_IF_ERROR(log.Print(printer).status());
    log.End(printer);
    if (printer.error() != 0) break;
  }
  return absl::OkStatus();
}

}  // namespace crowdsurf::cli
