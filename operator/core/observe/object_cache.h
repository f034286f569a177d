// ObjectCache: what a list and its watch say of one kind of object, projected to the fields that
// are used.
//
// A pod's JSON is tens of kilobytes and its projection some hundred bytes: the cache keeps only T,
// so memory follows the number of objects and not their size. Replace takes a whole list (start,
// and after 410); Apply one watch event; Assume what the server answered to a write of ours. All
// report the keys whose projection changed, so unchanged resyncs wake nobody; the version of an
// object is kept beside it and follows every word about it, changed or not.
//
// A decision must not see less than it has done. So news that are older than what is known of an
// object are ignored, and what was assumed stays until the list or the watch has told everything up
// to its version: a list from before a create cannot make its pod forgotten, however late it comes,
// and an answer that comes after the news of its object's end cannot bring it back. Only a list
// that is older than what was told already is the truth whatever is held: the server was set back,
// as by a restore of its etcd, and counts from there. Versions are compared as numbers (KEP-5504);
// 0: none, as old as anything. Owner: the controller's host thread. Single sequence. Bound: the
// objects that the API server holds under the selector.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace crowdsurf::controller {

// One object as it was at a version. key: "namespace/name", or "name" for a cluster-scoped one.
template <class T>
struct Sighting {
  std::string key;
  uint64_t version = 0;
  std::optional<T> value;  // nullopt: gone
};

// Every object that there was at a version.
template <class T>
struct Listing {
  std::vector<Sighting<T>> objects;
  uint64_t version = 0;
};

// T: equality-comparable.
template <class T>
class ObjectCache {
 public:
  struct Change {
    std::string key;
    std::optional<T> before;  // nullopt: new
    std::optional<T> after;   // nullopt: gone
  };
  struct Held {
    T value;
    uint64_t version = 0;
  };

  // A list that covers everything: what is not in it is gone, unless it is younger.
  std::vector<Change> Replace(Listing<T> list) {
    std::vector<Change> changes;
    std::map<std::string, Held> fresh;
    // Lists and events of one kind come in order, so a list is never older than they but then.
    const bool set_back = list.version > 0 && list.version < told_;
    for (Sighting<T>& seen : list.objects) {
      if (!seen.value) continue;
      fresh.insert_or_assign(std::move(seen.key), Held{std::move(*seen.value), seen.version});
    }
    for (auto& [key, held] : objects_) {
      const auto it = fresh.find(key);
      if (it == fresh.end()) {
        if (list.version > 0 && held.version > list.version && !set_back) {
          fresh.emplace(key, std::move(held));
        } else {
          changes.push_back({key, std::move(held.value), std::nullopt});
        }
      } else if (it->second.version < held.version && !set_back) {
        it->second = std::move(held);
      } else if (!(it->second.value == held.value)) {
        changes.push_back({key, std::move(held.value), it->second.value});
      }
    }
    for (const auto& [key, held] : fresh) {
      if (!objects_.contains(key)) changes.push_back({key, std::nullopt, held.value});
    }
    objects_ = std::move(fresh);
    told_ = list.version;
    return changes;
  }

  // nullopt: nothing that is used has changed.
  std::optional<Change> Apply(Sighting<T> seen) {
    told_ = std::max(told_, seen.version);
    return Take(std::move(seen));
  }

  // The same, for the answer to a write of ours: of what is not known only if it may still come.
  std::optional<Change> Assume(Sighting<T> seen) {
    if (seen.version <= told_ && !objects_.contains(seen.key)) return std::nullopt;
    return Take(std::move(seen));
  }

  const T* Find(const std::string& key) const {
    const auto it = objects_.find(key);
    return it == objects_.end() ? nullptr : &it->second.value;
  }
  // Of the object as the server last told or answered; 0: it is not known, or has none.
  uint64_t Version(const std::string& key) const {
    const auto it = objects_.find(key);
    return it == objects_.end() ? 0 : it->second.version;
  }
  const std::map<std::string, Held>& objects() const { return objects_; }

 private:
  std::optional<Change> Take(Sighting<T> seen) {
    const auto it = objects_.find(seen.key);
    if (it == objects_.end()) {
      if (!seen.value) return std::nullopt;
      objects_.emplace(seen.key, Held{*seen.value, seen.version});
      return Change{std::move(seen.key), std::nullopt, std::move(seen.value)};
    }
    Held& held = it->second;
    if (seen.version < held.version) return std::nullopt;
    if (!seen.value) {
      Change change{std::move(seen.key), std::move(held.value), std::nullopt};
      objects_.erase(it);
      return change;
    }
    held.version = seen.version;
    if (held.value == *seen.value) return std::nullopt;
    Change change{std::move(seen.key), std::move(held.value), *seen.value};
    held.value = std::move(*seen.value);
    return change;
  }

  std::map<std::string, Held> objects_;
  uint64_t told_ = 0;  // up to here the list and the watch have told everything
};

}  // namespace crowdsurf::controller
