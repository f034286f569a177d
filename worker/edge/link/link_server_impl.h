// Link server, inside: what its three files share (link_server.cc: the host's calls;
// link_session.cc: the HTTP endpoints; link_watch.cc: the thread that watches the trainer's words).
//
// Lock rule: `mutex` guards everything below it; words in the mapping need none. Events are given
// to the sink with the mutex held, so that their order is the order of what happened.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker/edge/link/held_state.h"
#include "worker/edge/link/link_api.h"
#include "worker/edge/link/link_folder.h"
#include "worker/edge/link/link_listener.h"
#include "worker/edge/link/link_mapping.h"
#include "worker/edge/link/link_server.h"

namespace crowdsurf::worker {

struct LinkMetrics {
  explicit LinkMetrics(MetricRegistry& r) : registry(r) {}

  MetricRegistry& registry;
  // A fresh trainer.
  Counter& registered = Registrations("fresh");
  // A living trainer came back.
  Counter& continued = Registrations("continued");
  // A second trainer.
  Counter& refused_busy = Registrations("busy");
  // Another model than the file was made for.
  Counter& refused_schema = Registrations("other_schema");
  // Garbled or out of bounds.
  Counter& refused_invalid = Registrations("invalid");
  // The volume is too small.
  Counter& refused_space = Registrations("no_space");
  Counter& published = Snapshots("taken");
  // Answers a request that was replaced meanwhile.
  Counter& published_late = Snapshots("late");
  // A number nobody asked for: dropped.
  Counter& published_unasked = Snapshots("unasked");
  // NaN or infinity in the parameters.
  Counter& published_bad = Snapshots("not_finite");
  // Files found at the start that were no link.
  Counter& set_aside =
      registry.AddCounter("crowdsurf_link_files_set_aside_total",
                          "Files in place of the link found at a start that were none.");

 private:
  Counter& Registrations(const char* result) {
    return registry.AddCounter("crowdsurf_link_registrations_total",
                               "Trainers that registered, by what came of it.",
                               {{"result", result}});
  }
  Counter& Snapshots(const char* result) {
    return registry.AddCounter("crowdsurf_link_snapshots_total",
                               "Snapshots the trainer published, by what came of them.",
                               {{"result", result}});
  }
};

struct LinkServer::Impl {
  Impl(LinkServerOptions o, LinkFolder f, Sink s, Logger l, MetricRegistry& m)
      : options(std::move(o)),
        folder(std::move(f)),
        sink(std::move(s)),
        log(l),
        registry(m),
        metrics(m) {}

  // The mapping, nullptr before the first registration. Set once, never moved.
  const LinkMapping* map() const { return mapped.load(std::memory_order_acquire); }
  LinkControl& control() const;  // pre: mapped

  // link_server.cc
  Status OpenExisting();
  // 0 when `number` is not the last one asked for. Of a cadence a ticket is its own number.
  uint64_t TicketOf(uint64_t number) const;
  LinkCounters ReadCounters();  // takes the mutex

  // link_session.cc
  std::optional<HttpReply> Handle(LinkListener::ConnectionId id, HttpRequest&& request);
  void OnClosed(LinkListener::ConnectionId id);
  HttpReply Register(LinkListener::ConnectionId id, const std::string& body);
  Status CheckUnits(const std::vector<LinkTensor>& tensors) const;
  Status MapFor(const LinkGeometry& geometry);  // mutex held
  StatusOr<LinkMapping> CreateMapping(const LinkGeometry& geometry);
  void BeginSession(const RegisterRequest&);  // mutex held
  void MakeStacks();                          // mutex held
  HttpReply TakeOpaque(const HttpRequest& request);
  HttpReply GiveAdopted();
  HttpReply State();
  HttpReply DeclareBusy(const std::string& body);
  HttpReply DeclareData(const std::string& body);
  HttpReply Leave(LinkListener::ConnectionId id, const std::string& body);

  // link_watch.cc
  void Watch();
  void Scan();  // what changed since the last scan, as events
  void ScanFilling(std::unique_lock<std::mutex>& lock);
  void ScanPublished(std::unique_lock<std::mutex>& lock);
  link::Published SnapshotOf(uint64_t ticket) const;
  void Refuse(uint64_t number, uint64_t element);
  // The index of the first value of the outbox, up to `end`, that is not finite; `end`: none. Of a
  // snapshot that is looked at in parts, only what was not looked at yet. Without the lock
  // meanwhile; nullopt: the trainer has gone, or another has come.
  std::optional<uint64_t> LookUpTo(uint64_t end, std::unique_lock<std::mutex>& lock);
  void ScanWords();  // everything but snapshots; mutex held
  Duration ScanInterval();

  const LinkServerOptions options;
  const LinkFolder folder;
  const Sink sink;
  const Logger log;
  MetricRegistry& registry;
  LinkMetrics metrics;
  std::atomic<const LinkMapping*> mapped{nullptr};
  std::atomic<bool> stop{false};  // raised, maybe before there was a file to say so
  // The last snapshot asked for: the host's averaging number and the ticket that stands for it in
  // the file. The host's thread writes, ticket last; the watcher reads.
  std::atomic<uint64_t> asked_number{0}, asked_ticket{0};
  uint64_t tickets = 0;                     // given out so far; the host's thread
  std::atomic<uint64_t> adopt_sequence{0};  // the host's thread writes

  std::mutex mutex;
  std::condition_variable changed;  // mapped or stopping
  std::optional<LinkMapping> mapping;
  OwnedFd stacks;                         // of the registered trainer; none: it could not be made
  LinkOverlap overlap = options.overlap;  // the last told, maybe before there was a file to say so
  uint64_t share = options.gradients ? 1 : 0;  // the last told, likewise
  bool stopping = false;
  uint64_t session = 0, sessions = 0;  // the live one (0: none), and how many there were
  LinkListener::ConnectionId session_connection = 0;
  bool bells = false;
  std::vector<std::string> metric_names;
  ProgressRequest told;  // by POST /v1/progress, for clients that do not use the slots
  struct {
    uint64_t ticket = 0;   // of the snapshot that is being copied; 0: none was
    uint64_t looked = 0;   // values of it that are finite, from the first on
    bool refused = false;  // one is not
  } filling;
  struct {
    uint64_t published = 0, applied = 0, adopted = 0;
    uint64_t wake_steps = 0, wake_samples = 0;  // the mark already reported
    uint64_t shares = 0;
    bool stopped = false;
    bool waited = false;
  } seen;
  LinkNotice notice;
  LeasesGranted leases;
  std::optional<LinkListener::ConnectionId> leave_connection;
  std::optional<HeldOpaque> opaque;  // the trainer's last given state
  std::optional<HeldOpaque> adopt;   // what it is to adopt

  std::thread watcher;
  std::unique_ptr<LinkListener> listener;
};

// How far the trainer is in its leases.
StreamProgress ReadLeases(const LinkControl& control);

// Stores `value` unless the word is there already or beyond.
void RaiseTo(std::atomic<uint64_t>& word, uint64_t value);

}  // namespace crowdsurf::worker
