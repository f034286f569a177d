#include "cli/logs/cluster_logs.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "operator/core/job/json_path.h"
#include "operator/core/job/training_job.h"
#include "operator/core/job/validate.h"
#include "operator/core/observe/observe.h"
#include "operator/core/pods/pod_builder.h"
#include "operator/edge/kube/kube_requests.h"

namespace crowdsurf::cli {
namespace {

using controller::KubeClient;
using controller::PercentEncoded;
using controller::TextAt;
using nlohmann::json;

// A log may be silent for as long as a step takes; the kernel's probes find a machine that is gone.
constexpr Duration kLogSilence = Seconds(7.0 * 24 * 3600);
constexpr int kPodsLook_ms = 1000;  // between two looks at which pods there are

std::string JobsPath(const std::string& space) {
  return "/apis/crowdsurf.io/v1alpha1/namespaces/" + PercentEncoded(space) + "/trainingjobs";
}

// The job; NotFound names those that are there.
StatusOr<json> FindJob(KubeClient& client, const std::string& space, const std::string& name) {
  StatusOr<json> job = client.Get(JobsPath(space) + "/" + PercentEncoded(name));
  if (!absl::IsNotFound(job.status())) return job;
  std::vector<std::string> names;
  const auto listed = client.List(
      JobsPath(space), [&](const json& item) { names.push_back(TextAt(item, "metadata.name")); });
  if (!listed.ok()) return listed.status();
  return absl::NotFoundError(absl::StrCat("no job ", name, " in namespace ", space, "; there ",
                                          names.empty() ? "is none" : "are " + Listed(names)));
}

StatusOr<std::vector<WorkerName>> PodsOf(KubeClient& client, const std::string& space,
                                         const json& job) {
  std::vector<WorkerName> there;
  const std::string selector =
      std::string(controller::kJobUidLabel) + "=" + TextAt(job, "metadata.uid");
  const auto listed = client.List("/api/v1/namespaces/" + PercentEncoded(space) +
                                      "/pods?labelSelector=" + PercentEncoded(selector),
                                  [&](const json& pod) {
                                    const auto name = ParseWorkerName(TextAt(pod, "metadata.name"));
                                    if (name) there.push_back(*name);
                                  });
  if (!listed.ok()) return listed.status();
  return there;
}

std::string Container(const json& job, LogOf of) {
  if (of == LogOf::kAgent) return std::string(controller::kAgentContainer);
  const json* pod_template = controller::At(job, "spec.template");
  const json* trainer =
      pod_template == nullptr ? nullptr : controller::TrainerContainer(*pod_template);
  return trainer == nullptr ? std::string() : TextAt(*trainer, "name");
}

// The end of what the last worker that failed printed, where `name` is that worker.
std::string LastWords(const json& job, const std::string& name) {
  if (TextAt(job, "status.failures.last.worker") != name) return {};
  return TextAt(job, "status.failures.last.output");
}

bool IsOver(const json& job) {
  const json* status = controller::At(job, "status");
  return status != nullptr && controller::StatusFromJson(*status).finished();
}

// Where the logs of one job are.
struct Source {
  KubeClient& client;
  std::string space, container;
  const LogsOptions& options;
  LinePrinter& printer;
};

// Until the log has ended, or nobody reads any more. `tail`: lines at first; negative: all.
Status PrintLog(const Source& source, const WorkerName& name, int tail) {
  const auto into = [&](const std::string& line) {
    source.printer.Print(name.text(), name.index, line);
  };
  std::string path = absl::StrCat("/api/v1/namespaces/", PercentEncoded(source.space), "/pods/",
                                  name.text(), "/log?container=", PercentEncoded(source.container));
  if (tail >= 0) absl::StrAppend(&path, "&tailLines=", tail);
  if (source.options.follow == Follow::kYes) path += "&follow=true";
  LogLines lines;
  const auto take = [&](std::string_view bytes) {
    lines.Take(bytes, into);
    return source.printer.error() == 0;
  };
  const Status ended = source.client.Watch(path, take, kLogSilence);
  lines.End(into);
  return source.printer.error() != 0 ? absl::OkStatus() : ended;
}

// A container that is yet to start: the API server says 400 of it, in these words.
bool StartsLater(const Status& ended) {
  return absl::IsInvalidArgument(ended) &&
         (ended.message().find("waiting to start") != std::string_view::npos ||
          ended.message().find("host assigned") != std::string_view::npos);
}

// Pods whose logs are followed, each on a thread of its own. One thread calls.
class Streams {
 public:
  explicit Streams(const Source& source) : source_(source) {}
  Streams(const Streams&) = delete;
  ~Streams() { source_.client.Stop(); }  // it ends their waiting; then they are joined

  // InvalidArgument: they are too many.
  Status Begin(const WorkerName& name, int tail) {
    if (streams_.size() >= kMaxFollowed) {
      return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxFollowed,
                                                     " workers cannot be followed at once; name "
                                                     "one of them"));
    }
    newest_[name.index] = std::max(newest_[name.index], name.incarnation);
    auto& stream = streams_.emplace_back(std::make_unique<Stream>());
    stream->name = name;
    stream->tail = tail;
    stream->thread = std::jthread([this, own = stream.get()] {
      own->ended = PrintLog(source_, own->name, own->tail);
      own->done = true;
    });
    return absl::OkStatus();
  }
  Status BeginNewcomers(std::vector<WorkerName> there) {
    std::sort(there.begin(), there.end());
    for (const WorkerName& name : there) {
      const auto known = newest_.find(name.index);
      if (known != newest_.end() && known->second >= name.incarnation) continue;
      RETURN_IF_ERROR(Begin(name, -1));
    }
    return absl::OkStatus();
  }
  // Forgets those that have ended. A pod that starts later is asked again; one that is gone is no
  // error. Else the first error.
  Status Look() {
    std::vector<std::unique_ptr<Stream>> ended;
    for (auto& stream : streams_) {
      if (stream->done) ended.push_back(std::move(stream));
    }
    std::erase(streams_, nullptr);
    for (const auto& stream : ended) {
      if (StartsLater(stream->ended)) {
        RETURN_IF_ERROR(Begin(stream->name, stream->tail));
      } else if (!absl::IsNotFound(stream->ended)) {
        RETURN_IF_ERROR(stream->ended);
      }
    }
    return absl::OkStatus();
  }
  bool empty() const { return streams_.empty(); }

 private:
  struct Stream {
    WorkerName name;
    int tail = -1;
    Status ended;
    std::atomic<bool> done{false};
    std::jthread thread;  // last: joined before the rest goes
  };

  const Source& source_;
  std::map<int, int> newest_;  // index -> highest incarnation that was begun
  std::vector<std::unique_ptr<Stream>> streams_;
};

Status FollowPods(const Source& source, const std::vector<WorkerName>& chosen) {
  const LogsOptions& options = source.options;
  Streams streams(source);
  for (const WorkerName& name : chosen) RETURN_IF_ERROR(streams.Begin(name, options.tail));
  while (source.printer.error() == 0) {
    RETURN_IF_ERROR(streams.Look());
    const bool newcomers = options.worker.empty() && options.which == Which::kNewest;
    bool over = true;
    if (newcomers) {
      // An API server that is away now and then ends nothing: the streams say when they end.
      const auto job =
          source.client.Get(JobsPath(source.space) + "/" + PercentEncoded(options.job));
      over = absl::IsNotFound(job.status()) || (job.ok() && IsOver(*job));
      const auto there = job.ok() ? PodsOf(source.client, source.space, *job) : job.status();
      if (there.ok()) RETURN_IF_ERROR(streams.BeginNewcomers(*there));
    }
    if (over && streams.empty()) break;
    poll(nullptr, 0, kPodsLook_ms);
  }
  return absl::OkStatus();
}

Status PrintPods(const Source& source, const std::vector<WorkerName>& chosen, const Note& note) {
  Status failed;
  bool any = false;
  for (const WorkerName& name : chosen) {
    const Status ended = PrintLog(source, name, source.options.tail);
    any = any || ended.ok();
    if (source.printer.error() != 0) break;
    if (ended.ok()) continue;
    note(name.text() + ": " + std::string(ended.message()));
    failed = ended;
  }
  return any ? absl::OkStatus() : failed;
}

}  // namespace

Status PrintClusterLogs(const LogsOptions& options, const std::string& space, KubeClient& client,
                        LinePrinter& printer, const Note& note) {
  ASSIGN_OR_RETURN(const json job, FindJob(client, space, options.job));
  ASSIGN_OR_RETURN(std::vector<WorkerName> there, PodsOf(client, space, job));
  const bool none = there.empty() && options.worker.empty();
  const auto chosen = ChooseWorkers(std::move(there), options.worker, options.which);
  // A job that is over may have no pod any more: then its last failure is what there is.
  const std::string worker = none ? TextAt(job, "status.failures.last.worker") : options.worker;
  const std::string words = chosen.ok() ? std::string() : LastWords(job, worker);
  if (!words.empty()) {
    note("the pod of " + worker + " is gone; the job's status keeps the end of its output");
    LogLines lines;
    const auto into = [&](const std::string& line) { printer.Print(worker, 0, line); };
    lines.Take(LastLines(words, options.tail), into);
    lines.End(into);
    return absl::OkStatus();
  }
  if (none) return absl::NotFoundError("job " + options.job + " has no pod now");
  RETURN_IF_ERROR(chosen.status());
  const Source source{client, space, Container(job, options.of), options, printer};
  return options.follow == Follow::kYes ? FollowPods(source, *chosen)
                                        : PrintPods(source, *chosen, note);
}

}  // namespace crowdsurf::cli
