// KubeConnections: the kept-alive connections of a KubeClient to its API server.
//
// Requests take one from the pool and give it back; a watch makes one of its own. A connection is
// used again only while its client certificate is the present one and it was not idle for longer
// than servers keep such connections. The kernel probes a connection that nothing comes over, so
// that a machine that is gone is noticed in kGoneAfter_s, however long a read would wait. Bound:
// `most` are out at once, further callers wait. TLS is verified against the endpoint's CA.
// Thread-safe.
#pragma once

#include <httplib.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "operator/edge/kube/kubeconfig.h"
#include "operator/edge/kube/socket_deadlines.h"

namespace crowdsurf::controller {

class KubeConnections {
 public:
  // Far below the shortest notice of a cloud, 30 s. Halved: a network that is lost for some seconds
  // costs every watch; doubled: a notice may be over before its watch is made anew.
  static constexpr int kGoneAfter_s = 16;

  struct Lease {
    std::unique_ptr<httplib::ClientImpl> client;
    std::shared_ptr<SocketLine> line;  // of the client's socket, for who must end it
    httplib::Headers headers;
    std::string path;         // in front of each request's
    std::string certificate;  // the client certificate that the connection was made with
    bool used = false;        // by an earlier request
    std::chrono::steady_clock::time_point idle_since = {};  // set by Release
  };

  // `endpoint` outlives the pool. `timeout`: of connecting, and of each read and write.
  KubeConnections(const KubeEndpoint& endpoint, std::string user_agent, Duration timeout, int most)
      : endpoint_(endpoint), user_agent_(std::move(user_agent)), timeout_(timeout), max_(most) {}

  // A new connection, outside the pool's bound. Nothing is sent yet. Errors: credentials that
  // cannot be read or are no PEM.
  StatusOr<Lease> Connect() const;
  // A pooled connection, or a new one while fewer than `most` are out; else waits for one, until
  // then. Unavailable: there was none; Cancelled after Stop. Each Acquire that was OK is followed
  // by one Release or Discard.
  StatusOr<Lease> Acquire(std::chrono::steady_clock::time_point until);
  // It is in order and may serve again.
  void Release(Lease lease);
  // It is not, and the caller has ended it or is about to.
  void Discard();
  // Ends all waiting, and all Acquire from now on.
  void Stop();

 private:
  httplib::Headers HeadersFor(const KubeCredentials& credentials) const;

  const KubeEndpoint& endpoint_;
  const std::string user_agent_;
  const Duration timeout_;
  const int max_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<Lease> idle_;
  int out_ = 0;
  bool stopped_ = false;
};

}  // namespace crowdsurf::controller
