// ExternalEvents: what the outside asks of an agent while it runs: to leave, to know peers, to
// change.
//
// Purpose: one thread that waits on SIGTERM/SIGINT and on changes of the agent's own folder
// (inotify) and gives events to the host's mailbox. The folder's files are written by the cluster
// with rename, or by a kubelet that swaps a symbolic link: after any change all are read again and
// compared, so it does not matter how. Garbled files change nothing and are counted. Bounds: 1 MiB
// a file, 4,096 seeds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "base/time.h"

namespace crowdsurf::worker {

struct SeedsChanged {
  std::vector<std::string> seeds;  // host:port, in the file's order, without duplicates
};
// The platform is about to take this worker; or, without `reason`, no longer is.
struct NoticeChanged {
  bool leaving = false;
  std::string reason;
  WallTime deadline;  // infinite: the platform does not say when
};
struct ConfigFileChanged {
  std::string text;  // JSON, as written: {"generation", "averaging", "target", "checkpoint"}
};
// Leave now. `deadline`: when a SIGKILL must be expected.
struct TerminationAsked {
  int signal = 0;
  WallTime deadline;
};
using ExternalEvent =
    std::variant<SeedsChanged, NoticeChanged, ConfigFileChanged, TerminationAsked>;

struct ExternalEventsOptions {
  std::string agent_dir;
  std::string cluster_dir;  // watched too when its files are links into it; may be empty
  // docs/agent.md: designed for 10 s, because some clouds give 15 s.
  Duration grace = Seconds(10);
};

// Call first thing in main, before any thread: SIGTERM and SIGINT then reach ExternalEvents and
// nobody else.
void BlockEndSignals();

class ExternalEvents {
 public:
  using Sink = std::function<void(ExternalEvent)>;
  // Emits the present contents of the files before it returns, then every change from its own
  // thread. Error: NotFound when the folder is not there.
  static StatusOr<std::unique_ptr<ExternalEvents>> Start(ExternalEventsOptions options, Sink sink,
                                                         Logger log, MetricRegistry& metrics);
  ~ExternalEvents();
  ExternalEvents(const ExternalEvents&) = delete;
  ExternalEvents& operator=(const ExternalEvents&) = delete;

 private:
  struct Impl;
  explicit ExternalEvents(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// {"reason": string, "deadline": unix seconds}, one of which may be missing; empty or blank text is
// "no notice".
StatusOr<NoticeChanged> ParseNotice(std::string_view text);

}  // namespace crowdsurf::worker
