// Link listener: a small bounded HTTP/1.1 server on a Unix socket, one thread, poll(2).
//
// Purpose: serves agent.sock for LinkServer. The handler runs on the listener's thread and answers
// at once, or later from any thread through Reply. A connection is kept until its peer closes it:
// that it is open is the sign of life of a trainer. Bounds: connections, head, body in memory, one
// upload at a time (its body goes to a held state), and a half-sent request ends after
// `request_patience`; each refusal is counted by reason. Why not cpp-httplib: see link_http.h.
#pragma once

#include <poll.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/metrics.h"
#include "base/status.h"
#include "base/time.h"
#include "worker/edge/link/held_state.h"
#include "worker/edge/link/link_folder.h"
#include "worker/edge/link/link_http.h"

namespace crowdsurf::worker {

struct HttpRequest {
  std::string method, target;  // target as sent, query included
  std::string body;
  std::shared_ptr<const HeldState> upload;  // uploads: the body is here instead
};

struct LinkListenerOptions {
  const LinkFolder* folder = nullptr;  // of the socket and of uploads; outlives the listener
  const char* socket = "agent.sock";
  size_t max_connections = 16;
  size_t max_body = 4 << 20;                       // JSON bodies: 65,536 tensors fit
  std::string upload_method = "PUT", upload_path;  // whose bodies are uploads
  uint64_t max_upload = 0;
  Duration request_patience = Seconds(10);
};

class LinkListener {
 public:
  using ConnectionId = uint64_t;
  // Nullopt: Reply comes later.
  using Handler = std::function<std::optional<HttpReply>(ConnectionId, HttpRequest&&)>;
  using Closed = std::function<void(ConnectionId)>;

  // Binds (a stale socket of a dead agent is replaced; FailedPrecondition when one is answered),
  // makes it mode 0666 and starts the thread.
  static StatusOr<std::unique_ptr<LinkListener>> Start(LinkListenerOptions options, Handler handler,
                                                       Closed closed, MetricRegistry& metrics);
  ~LinkListener();  // closes every connection; `closed` is not called for them

  // Answers a request that the handler left open. Any thread. Dropped when the connection is gone.
  void Reply(ConnectionId connection, HttpReply reply);

 private:
  struct Connection;
  LinkListener(LinkListenerOptions options, Handler handler, Closed closed,
               MetricRegistry& metrics);
  Status Listen();
  void Run();
  void Wake();
  void Accept();
  void TakeReplies();
  // False: the connection is to be closed.
  bool OnReadable(ConnectionId id, Connection& c);
  bool OnWritable(Connection& c);
  bool TakeRequests(ConnectionId id, Connection& c);
  bool BeginBody(Connection& c);
  Status BeginUpload(Connection& c);
  bool TakeBody(Connection& c);
  void Queue(Connection& c, const HttpReply& reply);
  // Counts, answers with `code` and closes when the answer is sent.
  bool Refuse(Connection& c, int code, const char* reason, const std::string& words);
  void RefuseUpload(Connection& c, int code, const char* reason, const std::string& words);
  void Drop(ConnectionId id);
  int64_t Deadline() const;  // of what starts now
  // What poll is to wait for; the time it may take, in milliseconds, -1: any.
  int Watch(std::vector<pollfd>& polled, std::vector<ConnectionId>& ids);

  const LinkListenerOptions options_;
  const Handler handler_;
  const Closed closed_;
  MetricRegistry& metrics_;
  std::map<std::string, Counter*> refused_;
  int listener_ = -1, wake_ = -1;
  std::map<ConnectionId, std::unique_ptr<Connection>> connections_;  // the thread's own
  ConnectionId next_id_ = 1;
  bool upload_busy_ = false;
  int64_t accept_at_ns_ = 0;  // after a want of descriptors; 0: at once

  std::mutex mutex_;
  std::vector<std::pair<ConnectionId, HttpReply>> replies_;  // guarded by mutex_
  bool stopping_ = false;                                    // guarded by mutex_
  std::thread thread_;
};

}  // namespace crowdsurf::worker
