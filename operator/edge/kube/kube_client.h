// KubeClient: the Kubernetes API over HTTPS, by path and JSON.
//
// A pool of at most `connections` kept-alive connections serves requests; a watch has one of its
// own. TLS is verified against the cluster's CA. Every failure is a Status (api_errors.h);
// Unavailable: nobody answered, or not in time, and whether it was done is not known.
// Repeated is a GET, and what could not be sent whole, once each, when its kept-alive connection
// had ended; and what the server asks to send later (429, or 5xx with Retry-After), after the pause
// that it asks for. Requests of the same verb and resource keep that pause, too, and no others: a
// server that puts off creates of pods has said nothing about notices. Else the caller has the
// back-off.
// A request ends when `timeout` is over, whatever it waited for. The process must ignore SIGPIPE
// (its main does): OpenSSL writes to closed sockets. Thread-safe. No exception leaves it: each is
// an Internal error, and counted. Bounds: kMaxApiAnswer of an answer, one object of a list.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/edge/clock.h"
#include "base/metrics.h"
#include "base/status.h"
#include "base/time.h"
#include "operator/edge/kube/kubeconfig.h"

namespace crowdsurf::controller {

// API servers send bookmarks about once a minute.
inline constexpr Duration kWatchSilence = Seconds(120);
// An object is at most 1.5 MiB in etcd; twice that as JSON with managed fields.
inline constexpr size_t kMaxApiAnswer = 16 << 20;

enum class PatchType { kMerge, kStrategicMerge, kApply };

// A list that is small by its nature.
struct KubeList {
  std::vector<nlohmann::json> items;
  std::string resource_version;  // to watch from
};

class KubeClient {
 public:
  struct Options {
    int connections = 16;            // at once; further requests wait for one
    Duration timeout = Seconds(10);  // of one request, with all that it waits for
    std::string user_agent = "crowdsurf";
    MetricRegistry* metrics = nullptr;  // rest_client_*; not owned
    std::function<Time()> clock = SteadyNow;
  };
  KubeClient(KubeEndpoint endpoint, Options options);
  ~KubeClient();

  // `path` begins with /api or /apis and may carry a query.
  StatusOr<nlohmann::json> Get(const std::string& path);
  StatusOr<nlohmann::json> Create(const std::string& path, const nlohmann::json& object);
  StatusOr<nlohmann::json> Replace(const std::string& path, const nlohmann::json& object);
  // kApply: server-side apply; the caller's path names fieldManager.
  StatusOr<nlohmann::json> Patch(const std::string& path, PatchType type,
                                 const nlohmann::json& patch);
  // `options`: a DeleteOptions body (gracePeriodSeconds, preconditions {uid, resourceVersion},
  // propagationPolicy).
  Status Delete(const std::string& path, const nlohmann::json& options = nlohmann::json::object());
  // All pages of a list, `page` items each, one item at a time: no more of it is held. Returns the
  // version to watch from. After an error what came so far means nothing.
  StatusOr<std::string> List(const std::string& path,
                             const std::function<void(const nlohmann::json&)>& on_item,
                             int page = 500);
  // The same, kept.
  StatusOr<KubeList> List(const std::string& path, int page = 500);

  // Streams a watch until it ends, `on_bytes` gives false, or Stop(). OK when the server closed it
  // (its time-out). Nothing for as long as `silence`: its connection is lost. Blocking: call it on
  // a thread of its own.
  Status Watch(const std::string& path, const std::function<bool(std::string_view)>& on_bytes,
               Duration silence = kWatchSilence);
  // Ends all watches and refuses further requests. Thread-safe, idempotent.
  void Stop();

  const std::string& default_namespace() const;
  // The server is away or was lately, by this client's own requests and watches: what it says of
  // pods may be older than what others know of them, for so long (outages.h). Thread-safe.
  Duration OutageLingers() const;
  // The last request or watch got no answer. Thread-safe.
  bool away() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace crowdsurf::controller
