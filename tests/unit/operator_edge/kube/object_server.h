// ObjectServer: an API server of tests that remembers: jobs, workers' pods and nodes can be listed,
// watched, made, changed and deleted, and their versions count.
//
// What a write of a real one does and a table of answers cannot: a status is refused with 409 when
// its resourceVersion is not the newest, a name that is taken with AlreadyExists, and every change
// reaches the watches. A test may refuse requests or keep them waiting (Intercept), or lose an
// answer after the deed. Objects of other kinds can be written and are never there. Thread-safe;
// bounded by the test. Knows nothing of validation, defaults, garbage collection or kubelets.
#pragma once

#include <httplib.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "operator/core/observe/observe.h"
#include "tests/support/loopback_server.h"
#include "tests/unit/operator_edge/kube/plain_endpoint.h"

namespace crowdsurf::controller {

class ObjectServer {
 public:
  using Json = nlohmann::json;
  // Before a request is served, on its own thread, outside of every lock: an answer's code refuses
  // it; kCut serves it and loses the answer; nullopt serves it.
  using Interceptor =
      std::function<std::optional<int>(const std::string& method, const std::string& path)>;
  static constexpr int kCut = -1;

  ObjectServer() {
    server_.new_task_queue = [] { return new httplib::ThreadPool(48); };
    const auto serve = [this](const httplib::Request& request, httplib::Response& response) {
      Serve(request, response);
    };
    server_.Get(".*", serve).Post(".*", serve).Put(".*", serve).Patch(".*", serve);
    server_.Delete(".*", serve);
    loopback_.emplace(server_);
  }
  ~ObjectServer() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
  }
  KubeEndpoint endpoint() const { return PlainEndpoint(loopback_->port()); }
  void Intercept(Interceptor interceptor) {
    const std::lock_guard lock(mutex_);
    interceptor_ = std::move(interceptor);
  }

  // Kinds are the last words of their paths: "trainingjobs", "pods", "nodes".
  void Put(const std::string& kind, Json object) {
    const std::lock_guard lock(mutex_);
    (void)Store(kind, std::move(object));
  }
  // What others do to an object: `change` is merged into it.
  void Change(const std::string& kind, const std::string& key, const Json& change) {
    const std::lock_guard lock(mutex_);
    Json object = objects_[kind].at(key);
    object.merge_patch(change);
    (void)Store(kind, std::move(object));
  }
  void Remove(const std::string& kind, const std::string& key) {
    const std::lock_guard lock(mutex_);
    Erase(kind, key);
  }
  // null: there is none.
  Json Find(const std::string& kind, const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_[kind].find(key);
    return found == objects_[kind].end() ? Json() : found->second;
  }
  std::vector<std::string> Keys(const std::string& kind) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> keys;
    for (const auto& [key, object] : objects_[kind]) keys.push_back(key);
    return keys;
  }
  // Events that were written.
  std::vector<Json> Events() {
    const std::lock_guard lock(mutex_);
    return events_;
  }
  // Requests as they came: "POST /api/v1/...".
  std::vector<std::string> Requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  struct Place {
    std::string kind, key;    // key empty: all of them; kind empty: none of ours
    std::string part, space;  // "status" of one
  };
  // .../namespaces/NS/KIND/NAME/PART, .../KIND, .../nodes/NAME
  static Place PlaceOf(const std::string& path) {
    std::vector<std::string> words;
    for (size_t at = 1; at < path.size();) {
      const size_t end = std::min(path.find('/', at), path.size());
      words.push_back(path.substr(at, end - at));
      at = end + 1;
    }
    Place place;
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i] == "namespaces" && i + 2 < words.size())
        place.space = words[++i];
      else if (words[i] == "trainingjobs" || words[i] == "pods" || words[i] == "nodes") {
        place.kind = words[i];
        if (i + 1 < words.size())
          place.key = place.space.empty() ? words[i + 1] : place.space + "/" + words[i + 1];
        if (i + 2 < words.size()) place.part = words[i + 2];
        break;
      }
    }
    return place;
  }

  Json Store(const std::string& kind, Json object) {
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
    if (!object["metadata"].contains("uid"))
      object["metadata"]["uid"] = "uid-" + std::to_string(version_);
    const std::string key = KeyOf(object);
    const bool fresh = !objects_[kind].contains(key);
    objects_[kind][key] = object;
    log_.push_back({version_, kind, {{"type", fresh ? "ADDED" : "MODIFIED"}, {"object", object}}});
    changed_.notify_all();
    return object;
  }
  void Erase(const std::string& kind, const std::string& key) {
    Json object = objects_[kind].at(key);
    objects_[kind].erase(key);
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
    log_.push_back({version_, kind, {{"type", "DELETED"}, {"object", object}}});
    changed_.notify_all();
  }

  void Serve(const httplib::Request& request, httplib::Response& response) {
    Interceptor interceptor;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request.method + " " + request.path);
      interceptor = interceptor_;
    }
    std::optional<int> refused;
    if (interceptor) refused = interceptor(request.method, request.path);
    if (refused && *refused != kCut) {
      return Answer(response, *refused, {{"kind", "Status"}, {"message", "refused by the test"}});
    }
    const Place place = PlaceOf(request.path);
    if (request.has_param("watch")) return Watch(request, place.kind, response);
    {
      const std::lock_guard lock(mutex_);
      const auto [code, body] = Do(request, place);
      Answer(response, code, body);
    }
    if (refused) {  // the deed is done, and the connection ends in the middle of its answer
      response.body.clear();
      response.set_content_provider(1000, "application/json",
                                    [](size_t, size_t, httplib::DataSink&) { return false; });
    }
  }
  static void Answer(httplib::Response& response, int code, const Json& body) {
    response.status = code;
    response.set_content(body.dump(), "application/json");
  }
  static std::pair<int, Json> Refuse(int code, const char* reason) {
    return {code, {{"kind", "Status"}, {"reason", reason}, {"message", reason}}};
  }

  std::pair<int, Json> Do(const httplib::Request& request, const Place& place) {
    if (place.kind.empty()) {
      if (request.method == "POST" && request.path.ends_with("/events"))
        events_.push_back(Json::parse(request.body));
      return request.method == "GET" ? Refuse(404, "NotFound") : std::pair(200, Json::object());
    }
    auto& all = objects_[place.kind];
    if (request.method == "GET" && place.key.empty()) {
      Json items = Json::array();
      for (const auto& [key, object] : all) items.push_back(object);
      return {200,
              {{"metadata", {{"resourceVersion", std::to_string(version_)}}}, {"items", items}}};
    }
    if (request.method == "POST") {
      Json object = Json::parse(request.body);
      object["metadata"]["namespace"] = place.space;
      if (all.contains(KeyOf(object))) return Refuse(409, "AlreadyExists");
      return {201, Store(place.kind, std::move(object))};
    }
    const auto found = all.find(place.key);
    if (found == all.end()) return Refuse(404, "NotFound");
    if (request.method == "GET") return {200, found->second};
    if (request.method == "DELETE") return {200, Go(place, found->second)};
    const Json patch = Json::parse(request.body);
    const Json* based_on = nullptr;
    if (patch.contains("metadata") && patch["metadata"].contains("resourceVersion"))
      based_on = &patch["metadata"]["resourceVersion"];
    if (based_on != nullptr && *based_on != found->second["metadata"]["resourceVersion"])
      return Refuse(409, "Conflict");
    Json object = found->second;
    object.merge_patch(patch);
    return {200, Store(place.kind, std::move(object))};
  }
  // A pod without a node goes at once, others when the test says so.
  Json Go(const Place& place, Json object) {
    if (place.kind != "pods" || !object.contains("spec") || !object["spec"].contains("nodeName")) {
      Erase(place.kind, place.key);
      return object;
    }
    object["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:30Z";
    object["metadata"]["deletionGracePeriodSeconds"] = 30;
    return Store(place.kind, std::move(object));
  }

  struct Logged {
    int version;
    std::string kind;
    Json event;
  };
  void Watch(const httplib::Request& request, const std::string& kind,
             httplib::Response& response) {
    int from = version_from(request);
    response.set_chunked_content_provider(
        "application/json", [this, kind, from](size_t, httplib::DataSink& sink) mutable {
          std::string lines;
          {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return ending_ || version_ > from; });
            if (ending_) return false;
            for (const Logged& one : log_) {
              if (one.version > from && one.kind == kind) lines += one.event.dump() + "\n";
            }
            from = version_;
          }
          return lines.empty() || sink.write(lines.data(), lines.size());
        });
  }
  static int version_from(const httplib::Request& request) {
    const std::string text = request.get_param_value("resourceVersion");
    return text.empty() ? 0 : std::stoi(text);
  }

  Interceptor interceptor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  int version_ = 100;
  std::map<std::string, std::map<std::string, Json>> objects_;
  std::vector<Logged> log_;
  std::vector<std::string> requests_;
  std::vector<Json> events_;
  httplib::Server server_;
  std::optional<LoopbackServer> loopback_;  // last: it ends before what its answers use
};

}  // namespace crowdsurf::controller
