// UidRecords: what is remembered of each object, which dies with its uid.
//
// Objects are asked for by key, "namespace/name". A key outlives an object: a job may be deleted
// and made again between two looks. So a record belongs to a uid, and the first word about another
// uid under the key begins a new one. Owner: the controller's host thread. Single sequence. Bound:
// one record a key; the owner forgets keys that are gone.
#pragma once

#include <map>
#include <string>
#include <utility>

namespace crowdsurf::controller {

template <class Record>
class UidRecords {
 public:
  // The record of this uid. New when there is none, or when the key was another uid's.
  Record& Of(const std::string& key, const std::string& uid) {
    auto [it, fresh] = records_.try_emplace(key);
    if (fresh || it->second.uid != uid) it->second = Held{uid, Record()};
    return it->second.record;
  }
  // nullptr: there is none of this uid.
  Record* Find(const std::string& key, const std::string& uid) {
    const auto it = records_.find(key);
    return it == records_.end() || it->second.uid != uid ? nullptr : &it->second.record;
  }
  const Record* Find(const std::string& key, const std::string& uid) const {
    return const_cast<UidRecords*>(this)->Find(key, uid);
  }
  // Of whichever uid it is.
  void Forget(const std::string& key) { records_.erase(key); }
  void Clear() { records_.clear(); }
  bool empty() const { return records_.empty(); }
  // visit(record), in the order of keys.
  template <class Visit>
  void ForEach(const Visit& visit) const {
    for (const auto& [key, held] : records_) visit(held.record);
  }

 private:
  struct Held {
    std::string uid;
    Record record;
  };
  std::map<std::string, Held> records_;
};

}  // namespace crowdsurf::controller
