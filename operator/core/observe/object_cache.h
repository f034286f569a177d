// ObjectCache: what a list and its watch say of one kind of object, projected to the fields that
// are used.
//
// A pod's JSON is tens of kilobytes and its projection some hundred bytes: the cache keeps only T,
// so memory follows the number of objects and not their size. Replace takes a whole list (start,
// and after 410); Apply one watch event. Both report the keys whose projection changed, so
// unchanged resyncs wake nobody; T may hold what equality leaves out, such as a version, and the
// cache always has the newest. Owner: the controller's host thread. Single sequence. Bound: the
// objects that the API server holds under the selector.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/core/observe/watch_parser.h"

namespace crowdsurf::controller {

// "namespace/name", or "name" for a cluster-scoped object; empty when the object has no name.
inline std::string KeyOf(const nlohmann::json& object) {
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return {};
  const std::string name = metadata->value("name", "");
  const std::string space = metadata->value("namespace", "");
  return space.empty() || name.empty() ? name : space + "/" + name;
}

// T: equality-comparable. Project: T from an object's JSON; nullopt (counted) for one that cannot
// be read.
template <class T>
class ObjectCache {
 public:
  using Project = std::function<std::optional<T>(const nlohmann::json&)>;
  struct Change {
    std::string key;
    std::optional<T> before;  // nullopt: new
    std::optional<T> after;   // nullopt: gone
  };

  explicit ObjectCache(Project project) : project_(std::move(project)) {}

  // The items of a list that covers everything: what is not in it is gone.
  std::vector<Change> Replace(const std::vector<nlohmann::json>& items) {
    std::vector<Change> changes;
    std::map<std::string, T> fresh;
    for (const nlohmann::json& item : items) {
      std::string key = KeyOf(item);
      std::optional<T> value = key.empty() ? std::nullopt : project_(item);
      if (value) {
        fresh.insert_or_assign(std::move(key), std::move(*value));
      } else {
        ++unreadable_;
      }
    }
    for (const auto& [key, value] : objects_) {
      if (!fresh.contains(key)) changes.push_back({key, value, std::nullopt});
    }
    for (const auto& [key, value] : fresh) {
      const auto it = objects_.find(key);
      if (it == objects_.end()) {
        changes.push_back({key, std::nullopt, value});
      } else if (!(it->second == value)) {
        changes.push_back({key, it->second, value});
      }
    }
    objects_ = std::move(fresh);
    return changes;
  }

  // nullopt: nothing that is used has changed.
  std::optional<Change> Apply(const WatchEvent& event) {
    if (event.type == WatchEvent::Type::kBookmark || event.type == WatchEvent::Type::kExpired ||
        event.type == WatchEvent::Type::kFailed) {
      return std::nullopt;
    }
    const std::string key = KeyOf(event.object);
    const auto it = objects_.find(key);
    if (event.type == WatchEvent::Type::kDeleted) {
      if (it == objects_.end()) return std::nullopt;
      Change change{key, std::move(it->second), std::nullopt};
      objects_.erase(it);
      return change;
    }
    std::optional<T> value = key.empty() ? std::nullopt : project_(event.object);
    if (!value) {
      ++unreadable_;
      return std::nullopt;
    }
    if (it == objects_.end()) {
      objects_.emplace(key, *value);
      return Change{key, std::nullopt, std::move(value)};
    }
    // An equal value is kept too: it carries the newest version, which the next write is based on.
    T before = std::exchange(it->second, *value);
    if (before == *value) return std::nullopt;
    return Change{key, std::move(before), std::move(value)};
  }

  const T* Find(const std::string& key) const {
    const auto it = objects_.find(key);
    return it == objects_.end() ? nullptr : &it->second;
  }
  const std::map<std::string, T>& objects() const { return objects_; }
  uint64_t unreadable() const { return unreadable_; }

 private:
  Project project_;
  std::map<std::string, T> objects_;
  uint64_t unreadable_ = 0;
};

}  // namespace crowdsurf::controller
