// LinkListener::Connection: one connection to agent.sock, what came on it and what it is owed.
//
// Not for others than LinkListener to include. The listener's thread owns every connection. Bounds:
// those of link_listener.h.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "worker/edge/link/held_state.h"
#include "worker/edge/link/link_http.h"
#include "worker/edge/link/link_listener.h"

namespace crowdsurf::worker {

struct LinkListener::Connection {
  int fd = -1;
  std::string in;
  HttpHead head;
  bool in_body = false;     // head is parsed, its body is coming
  bool waiting = false;     // the handler has the request; further ones wait
  bool closing = false;     // close when everything is sent
  int64_t deadline_ns = 0;  // of a half-sent request; 0: none
  std::string out;
  size_t out_sent = 0;
  std::shared_ptr<const HeldState> file;  // reply body after `out`
  uint64_t file_left = 0;
  std::shared_ptr<HeldState> upload;  // request body goes here
  uint64_t upload_left = 0;
  std::optional<HttpReply> refusal;  // of an upload: its body is read and thrown away before it

  ~Connection() {
    if (fd >= 0) ::close(fd);
  }
  bool sending() const { return out_sent < out.size() || file_left > 0; }
};

}  // namespace crowdsurf::worker
