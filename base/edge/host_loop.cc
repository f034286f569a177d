#include "base/edge/host_loop.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/edge/clock.h"

namespace crowdsurf {
namespace {

using SteadyClock = std::chrono::steady_clock;

// A closure that holds the host thread longer than this starves every core of the process.
constexpr Duration kSlow = Milliseconds(50);

// Of the mailbox before timers are looked at. What came while one pass ran is the next one's; who
// posts faster than four passes run must not hold the timers back.
constexpr int kMaxPasses = 4;

int64_t SteadyNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now().time_since_epoch())
      .count();
}

}  // namespace

HostLoop::HostLoop(size_t mailbox_capacity, MetricRegistry& metrics, Logger logger)
    // An hour back: no Time of this process is zero, which means unset.
    : origin_nanoseconds_(SteadyNanoseconds() - 3'600'000'000'000),
      mailbox_(mailbox_capacity),
      logger_(logger.For("host")),
      refused_(metrics.AddCounter("crowdsurf_host_refused_total",
                                  "Events refused because the host's mailbox was full.")),
      slow_(metrics.AddCounter("crowdsurf_host_slow_events_total",
                               "Events and timers that held the host thread over 50 ms.")),
      busy_(metrics.AddCounter("crowdsurf_host_busy_seconds_total",
                               "Time the host thread spent in events and timers.")),
      longest_(metrics.AddGauge("crowdsurf_host_longest_event_seconds",
                                "The longest that one event or timer held the host thread.")) {}

Time HostLoop::Now() const {
  return Time::FromNanoseconds(SteadyNanoseconds() - origin_nanoseconds_);
}

WallTime HostLoop::Wall() { return WallNow(); }

bool HostLoop::Post(Closure closure) {
  if (mailbox_.Post(std::move(closure))) return true;
  refused_.Add();
  return false;
}

void HostLoop::AddSource(TimerSource* source) { sources_.push_back(source); }

void HostLoop::RemoveSource(TimerSource* source) { std::erase(sources_, source); }

void HostLoop::RequestStop(Duration grace) {
  const int64_t by = (Now() + grace).nanoseconds();
  int64_t current = stop_by_.load();
  while ((current == 0 || by < current) && !stop_by_.compare_exchange_weak(current, by)) {
  }
  // Only wakes the loop; when the mailbox is full it is awake anyway.
  (void)mailbox_.Post([](Time, WallTime) {});
}

Time HostLoop::NextDeadline() const {
  Time next = Time::Infinite();
  for (const TimerSource* source : sources_) next = std::min(next, source->NextDeadline());
  // The end of the grace wakes the loop even when no source has anything to do.
  if (const int64_t by = stop_by_.load(); by != 0) {
    next = std::min(next, Time::FromNanoseconds(by));
  }
  return next;
}

// Earliest deadline first; a bounded number of turns, so that a source that is always due cannot
// starve the mailbox. After a slow one the mailbox is drained first: it held up what came
// meanwhile.
void HostLoop::RunDueSources() {
  for (size_t turn = 0; turn < 4 * sources_.size(); ++turn) {
    const Time now = Now();
    TimerSource* due = nullptr;
    for (TimerSource* source : sources_) {
      if (source->NextDeadline() > now) continue;
      if (due == nullptr || source->NextDeadline() < due->NextDeadline()) due = source;
    }
    if (due == nullptr) return;
    due->OnTimer(now, Wall());
    if (Account(now)) return;
  }
}

// True when it was slow.
bool HostLoop::Account(Time began) {
  const Duration took = Now() - began;
  busy_.Add(took.seconds());
  if (took.seconds() > longest_.value()) longest_.Set(took.seconds());
  if (took <= kSlow) return false;
  slow_.Add();
  return true;
}

void HostLoop::Drain() {
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    const size_t waiting = mailbox_.size();
    if (waiting == 0) return;
    for (size_t i = 0; i < waiting; ++i) {
      const auto closure = mailbox_.TryTake();
      if (!closure) return;
      const Time now = Now();
      (*closure)(now, Wall());
      Account(now);
    }
  }
}

void HostLoop::BeginStop() {
  stop_begun_ = true;
  const Time by = Time::FromNanoseconds(stop_by_.load());
  logger_.Info("stopping", {{"grace_seconds", (by - Now()).seconds()}});
  for (size_t i = 0; i < sources_.size(); ++i) sources_[i]->OnStop(Now(), Wall(), by);
}

bool HostLoop::MayEnd() const {
  if (Now() >= Time::FromNanoseconds(stop_by_.load())) return true;
  return std::all_of(sources_.begin(), sources_.end(),
                     [](const TimerSource* source) { return source->Stopped(); });
}

void HostLoop::Run() {
  while (true) {
    if (stop_by_.load() != 0) {
      if (!stop_begun_) BeginStop();
      if (MayEnd()) break;
    }
    // One closure ends the wait. All that came with it runs before the timers (host_loop.h).
    const Time next = NextDeadline();
    const Time latest = Now() + Seconds(3600);  // wait_until with the end of time overflows
    const auto until = SteadyClock::time_point(
        std::chrono::nanoseconds(std::min(next, latest).nanoseconds() + origin_nanoseconds_));
    if (const auto closure = mailbox_.Take(until)) {
      const Time now = Now();
      (*closure)(now, Wall());
      Account(now);
    }
    Drain();
    RunDueSources();
  }
  // What is left is destroyed unrun, and here: closures may own what belongs to this thread.
  mailbox_.Close();
  while (mailbox_.TryTake()) {
  }
}

}  // namespace crowdsurf
