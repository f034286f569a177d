// KubeClient: the Kubernetes API over HTTPS, by path and JSON.
//
// A pool of at most `connections` kept-alive connections serves requests; a watch has one of its
// own. TLS is verified against the cluster's CA. Every failure is a Status: NotFound 404,
// AlreadyExists and Aborted 409 (create, conflict), OutOfRange 410, InvalidArgument 400 and 422,
// Unauthenticated 401, PermissionDenied 403, ResourceExhausted 429, DeadlineExceeded 504 and
// time-outs, Unavailable everything else that may pass; the message is the server's own words.
// Nothing here retries, but what found its kept-alive connection ended: a GET, and what could not
// be sent whole, once each; else the caller has the back-off. The process must ignore SIGPIPE (its
// main does): OpenSSL writes to closed sockets.
// Thread-safe. Exceptions of httplib end here.
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

enum class PatchType { kMerge, kStrategicMerge, kApply };

struct KubeList {
  std::vector<nlohmann::json> items;
  std::string resource_version;  // to watch from
};

class KubeClient {
 public:
  struct Options {
    int connections = 16;            // at once; further requests wait for one
    Duration timeout = Seconds(10);  // of one request
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
  // All pages of a list, `page` items each.
  StatusOr<KubeList> List(const std::string& path, int page = 500);

  // Streams a watch until it ends, `on_bytes` gives false, or Stop(). OK when the server closed it
  // (its time-out). Blocking: call it on a thread of its own.
  Status Watch(const std::string& path, const std::function<bool(std::string_view)>& on_bytes);
  // Ends all watches and refuses further requests. Thread-safe, idempotent.
  void Stop();

  const std::string& default_namespace() const;
  // The server is away or was lately, by this client's own requests and watches: what it says of
  // pods may be older than what others know of them, for so long (outages.h). Thread-safe.
  Duration OutageLingers() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace crowdsurf::controller
