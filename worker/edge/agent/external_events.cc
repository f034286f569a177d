#include "worker/edge/agent/external_events.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/edge/clock.h"
#include "base/edge/files.h"
#include "base/edge/inherited.h"
#include "base/endpoint.h"
#include "base/text.h"

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kMaxFile = 1 << 20;
constexpr size_t kMaxSeeds = 4096;
constexpr size_t kMaxReason = 256;

sigset_t EndSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  if (!IsIgnored(SIGINT)) sigaddset(&set, SIGINT);  // blocked it would arrive although ignored
  return set;
}

bool Blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == text.npos; }

std::vector<std::string> ParseSeeds(std::string_view text) {
  std::vector<std::string> seeds;
  std::set<std::string_view> seen;
  while (!text.empty() && seeds.size() < kMaxSeeds) {
    const size_t eol = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, eol);
    text.remove_prefix(std::min(eol + 1, text.size()));
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) {
      line.remove_suffix(1);
    }
    if (ParseEndpoint(line) && seen.insert(line).second) seeds.emplace_back(line);
  }
  return seeds;
}

}  // namespace

void BlockEndSignals() {
  const sigset_t set = EndSignals();
  // A signalfd gives only signals that no thread takes by itself.
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

StatusOr<NoticeChanged> ParseNotice(std::string_view text) {
  NoticeChanged notice;
  if (Blank(text)) return notice;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto bad = absl::InvalidArgumentError("no {\"reason\", \"deadline\"}");
  if (!json.is_object()) return bad;
  const auto deadline = json.find("deadline");
  const auto reason = json.find("reason");
  if (deadline == json.end() && reason == json.end()) return bad;
  notice.leaving = true;
  notice.deadline = WallTime::Infinite();
  if (deadline != json.end()) {
    if (!deadline->is_number()) return bad;
    const double seconds = deadline->get<double>();
    // 9e9 s is just below 2^63 ns, the end of WallTime.
    if (!std::isfinite(seconds) || seconds < 0 || seconds > 9e9) return bad;
    notice.deadline = WallTime::FromNanoseconds(static_cast<int64_t>(seconds * 1e9));
  }
  if (reason != json.end() && reason->is_string()) {
    notice.reason = CutText(reason->get<std::string>(), kMaxReason);
  }
  return notice;
}

struct ExternalEvents::Impl {
  ExternalEventsOptions options;
  Sink sink;
  Logger log;
  Counter* garbled = nullptr;
  int watch = -1, signals = -1, wake = -1;
  std::string seeds, notice, config;  // as last read
  bool read_once = false;
  std::thread thread;

  ~Impl() {
    for (const int fd : {watch, signals, wake}) {
      if (fd >= 0) ::close(fd);
    }
  }
  std::optional<std::string> Read(const char* name);
  void ReadAll();
  void TakeSignal();
  void Run();
};

// Absent is empty; nullopt: unreadable for now, or too long.
std::optional<std::string> ExternalEvents::Impl::Read(const char* name) {
  auto text = ReadFile(options.agent_dir + "/" + name, kMaxFile);
  if (text.ok()) return *std::move(text);
  if (absl::IsNotFound(text.status())) return std::string();
  garbled->Add();
  log.Warning("file of the agent's folder is unreadable",
              {{"file", name}, {"error", std::string(text.status().message())}});
  return std::nullopt;
}

void ExternalEvents::Impl::ReadAll() {
  const bool first = !std::exchange(read_once, true);
  // The first reading is told even when it is empty.
  if (auto text = Read("seeds"); text && (first || *text != seeds)) {
    seeds = *std::move(text);
    sink(SeedsChanged{ParseSeeds(seeds)});
  }
  if (auto text = Read("config"); text && *text != config) {
    config = *std::move(text);
    sink(ConfigFileChanged{config});
  }
  if (auto text = Read("notice"); text && *text != notice) {
    notice = *std::move(text);
    // Kept also when it is garbled, which is then counted once.
    auto parsed = ParseNotice(notice);
    if (parsed.ok()) {
      sink(*std::move(parsed));
    } else {
      garbled->Add();
      log.Warning("notice is garbled", {{"error", std::string(parsed.status().message())}});
    }
  }
}

void ExternalEvents::Impl::TakeSignal() {
  signalfd_siginfo info{};
  // A signalfd gives whole records.
  if (::read(signals, &info, sizeof info) != sizeof info) return;
  log.Info("asked to end", {{"signal", info.ssi_signo}});
  sink(TerminationAsked{static_cast<int>(info.ssi_signo), WallNow() + options.grace});
}

void ExternalEvents::Impl::Run() {
  while (true) {
    pollfd polled[] = {{wake, POLLIN, 0}, {watch, POLLIN, 0}, {signals, POLLIN, 0}};
    if (::poll(polled, 3, -1) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    if (polled[1].revents != 0) {
      // Which file it was is not asked: three short files are read and compared with what they
      // held.
      alignas(inotify_event) char ignored[16 * 1024];
      while (::read(watch, ignored, sizeof ignored) > 0) {
      }
      ReadAll();
    }
    if (polled[2].revents != 0) TakeSignal();
  }
}

StatusOr<std::unique_ptr<ExternalEvents>> ExternalEvents::Start(ExternalEventsOptions options,
                                                                Sink sink, Logger log,
                                                                MetricRegistry& metrics) {
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  impl->sink = std::move(sink);
  impl->log = log;
  impl->garbled = &metrics.AddCounter("crowdsurf_agent_files_garbled_total",
                                      "Files of the agent's folder that could not be understood.");
  const sigset_t set = EndSignals();
  impl->wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  impl->signals = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  impl->watch = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  // A kubelet renames a link beside the files, local mode renames each file: both are seen.
  const uint32_t mask = IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CREATE;
  if (impl->wake < 0 || impl->signals < 0 || impl->watch < 0 ||
      ::inotify_add_watch(impl->watch, impl->options.agent_dir.c_str(), mask) < 0 ||
      (!impl->options.cluster_dir.empty() &&
       ::inotify_add_watch(impl->watch, impl->options.cluster_dir.c_str(), mask) < 0)) {
    return absl::NotFoundError(
        absl::StrCat("agent directory ", impl->options.agent_dir, ": ", std::strerror(errno)));
  }
  impl->ReadAll();  // after the watch is set: nothing falls between
  impl->thread = std::thread([raw = impl.get()] { raw->Run(); });
  return std::unique_ptr<ExternalEvents>(new ExternalEvents(std::move(impl)));
}

ExternalEvents::ExternalEvents(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ExternalEvents::~ExternalEvents() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(impl_->wake, &one, sizeof one);
  impl_->thread.join();
}

}  // namespace crowdsurf::worker
