// WatchParser: a Kubernetes watch's bytes into events, without a socket.
//
// The API server sends one JSON object a line, cut into chunks anywhere. Feed takes what arrived;
// memory is bounded by the line limit. Garbled and oversized lines are counted and skipped; the
// caller relists when told to (`expired`, `failed`). Owner: a reflector's thread. Single sequence.
// Source: Kubernetes API concepts, "Efficient detection of changes" (ADDED, MODIFIED, DELETED,
// BOOKMARK, ERROR with a Status object; 410 means relist).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace crowdsurf::controller {

struct WatchEvent {
  enum class Type { kAdded, kModified, kDeleted, kBookmark, kExpired, kFailed };
  Type type = Type::kAdded;
  nlohmann::json object;         // for kExpired and kFailed: the Status object
  std::string resource_version;  // to continue from; empty for kExpired and kFailed
};

class WatchParser {
 public:
  // An object is at most 1.5 MiB in etcd; JSON with managed fields stays under 4 MiB. Halved: large
  // jobs' pods could be refused; doubled: a hostile server may hold that much more of our memory.
  static constexpr size_t kMaxLine = 4 << 20;

  explicit WatchParser(size_t max_line = kMaxLine) : max_line_(max_line) {}

  // Appends the events that `bytes` complete. kExpired (code 410) and kFailed end the watch: feed
  // no more.
  void Feed(std::string_view bytes, std::vector<WatchEvent>& out);

  uint64_t garbled() const { return garbled_; }      // lines that were no event
  uint64_t oversized() const { return oversized_; }  // lines above the limit

 private:
  void Line(std::string_view line, std::vector<WatchEvent>& out);

  size_t max_line_;
  std::string partial_;
  bool skipping_ = false;  // inside an oversized line
  uint64_t garbled_ = 0;
  uint64_t oversized_ = 0;
};

}  // namespace crowdsurf::controller
