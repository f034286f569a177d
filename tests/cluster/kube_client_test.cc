// The Kubernetes client against a real kube-apiserver: run by `./dev test cluster`, which sets
// KUBECONFIG.
#include "operator/edge/kube/kube_client.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <csignal>

#include <condition_variable>
#include <mutex>
#include <set>

#include "base/rng.h"
#include "operator/core/observe/object_cache.h"
#include "operator/core/observe/observe.h"
#include "operator/edge/kube/reflector.h"

namespace crowdsurf::controller {
namespace {

using Json = nlohmann::json;

class KubeClientTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { signal(SIGPIPE, SIG_IGN); }
  void SetUp() override {
    StatusOr<KubeEndpoint> endpoint = LoadDefaultKubeEndpoint();
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    client_ = std::make_unique<KubeClient>(*std::move(endpoint),
                                           KubeClient::Options{.metrics = &metrics_});
    space_ = absl::StrCat("client-test-", getpid(), "-", ++fixtures);
    ASSERT_TRUE(client_->Create("/api/v1/namespaces", {{"metadata", {{"name", space_}}}}).ok());
    path_ = "/api/v1/namespaces/" + space_ + "/configmaps";
  }
  void TearDown() override { EXPECT_TRUE(client_->Delete("/api/v1/namespaces/" + space_).ok()); }
  static Json Map(const std::string& name, const std::string& value = "1") {
    return {{"metadata", {{"name", name}}}, {"data", {{"value", value}}}};
  }

  static int fixtures;
  MetricRegistry metrics_;
  std::unique_ptr<KubeClient> client_;
  std::string space_, path_;
};
int KubeClientTest::fixtures = 0;

TEST_F(KubeClientTest, ErrorsAreStatusesInTheServersWords) {
  EXPECT_TRUE(absl::IsNotFound(client_->Get(path_ + "/none").status()));
  ASSERT_TRUE(client_->Create(path_, Map("a")).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(client_->Create(path_, Map("a")).status()));
  const Status invalid = client_->Create(path_, Map("Not A Name")).status();
  EXPECT_TRUE(absl::IsInvalidArgument(invalid)) << invalid;
  EXPECT_NE(invalid.message().find("metadata.name"), absl::string_view::npos) << invalid;
  Json stale = *client_->Get(path_ + "/a");
  ASSERT_TRUE(client_->Patch(path_ + "/a", PatchType::kMerge, {{"data", {{"value", "2"}}}}).ok());
  EXPECT_TRUE(absl::IsAborted(client_->Replace(path_ + "/a", stale).status()));
  EXPECT_TRUE(
      absl::IsAborted(client_->Delete(path_ + "/a", {{"preconditions", {{"uid", "other"}}}})));
  EXPECT_TRUE(
      client_->Delete(path_ + "/a", {{"preconditions", {{"uid", stale["metadata"]["uid"]}}}}).ok());
}

TEST_F(KubeClientTest, ServerSideApplyOwnsItsFields) {
  Json object = Map("applied", "mine");
  object["apiVersion"] = "v1";
  object["kind"] = "ConfigMap";
  const std::string apply = path_ + "/applied?fieldManager=crowdsurf&force=true";
  ASSERT_TRUE(client_->Patch(apply, PatchType::kApply, object).ok());
  ASSERT_TRUE(
      client_->Patch(path_ + "/applied", PatchType::kMerge, {{"data", {{"other", "x"}}}}).ok());
  const auto result = client_->Patch(apply, PatchType::kApply, object);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)["data"]["other"], "x");
  EXPECT_EQ((*result)["data"]["value"], "mine");
}

TEST_F(KubeClientTest, ListsInPagesSeeEverythingOnce) {
  for (int i = 0; i < 23; ++i)
    ASSERT_TRUE(client_->Create(path_, Map(absl::StrCat("page-", i))).ok());
  const auto list = client_->List(path_, 5);
  ASSERT_TRUE(list.ok()) << list.status();
  std::set<std::string> names;
  for (const Json& item : list->items) names.insert(item["metadata"]["name"]);
  EXPECT_EQ(names.size(), list->items.size());
  EXPECT_GE(names.size(), 23u);
  EXPECT_FALSE(list->resource_version.empty());
}

// Collects what a reflector says into a cache, as the controller does.
struct Collector {
  std::mutex mutex;
  std::condition_variable changed;
  ObjectCache<std::string> cache;
  Listing<std::string> listing;  // of the reflector's thread

  static Sighting<std::string> See(const Json& object) {
    const Json data = object.value("data", Json::object());
    return {KeyOf(object), VersionOf(object), data.value("value", "")};
  }
  Reflector::Receiver Receive(const std::string& path) {
    Reflector::Receiver receiver;
    receiver.path = path;
    receiver.on_begin = [this] { listing = {}; };
    receiver.on_item = [this](const Json& object) { listing.objects.push_back(See(object)); };
    receiver.on_list = [this](const std::string& version) {
      const std::lock_guard lock(mutex);
      listing.version = VersionNumber(version);
      cache.Replace(listing);
      changed.notify_all();
      return true;
    };
    receiver.on_event = [this](const WatchEvent& event) {
      Sighting<std::string> seen = See(event.object);
      if (event.type == WatchEvent::Type::kDeleted) seen.value = std::nullopt;
      const std::lock_guard lock(mutex);
      cache.Apply(seen);
      changed.notify_all();
      return true;
    };
    return receiver;
  }
  template <class Predicate>
  bool Wait(Predicate predicate) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), [&] { return predicate(cache); });
  }
};

TEST_F(KubeClientTest, AReflectorFollowsAddsChangesAndDeletes) {
  const std::string key = space_ + "/seen";
  Collector collector;
  Reflector reflector(*client_, collector.Receive(path_), Rng(1), Logger(), metrics_);
  reflector.Start();
  ASSERT_TRUE(client_->Create(path_, Map("seen", "1")).ok());
  EXPECT_TRUE(collector.Wait([&](const auto& cache) { return cache.Find(key) != nullptr; }));
  ASSERT_TRUE(
      client_->Patch(path_ + "/seen", PatchType::kMerge, {{"data", {{"value", "2"}}}}).ok());
  EXPECT_TRUE(collector.Wait(
      [&](const auto& cache) { return cache.Find(key) && *cache.Find(key) == "2"; }));
  ASSERT_TRUE(client_->Delete(path_ + "/seen").ok());
  EXPECT_TRUE(collector.Wait([&](const auto& cache) { return cache.Find(key) == nullptr; }));
  EXPECT_TRUE(client_->Delete("/api/v1/namespaces/" + space_).ok());
  client_->Stop();
  reflector.Stop();
  SetUp();  // a fresh client and namespace for TearDown
}

TEST_F(KubeClientTest, AnExpiredVersionListsAgain) {
  ASSERT_TRUE(client_->Create(path_, Map("a")).ok());
  std::vector<WatchEvent> events;
  WatchParser parser;
  const Status status =
      client_->Watch(path_ + "?watch=true&resourceVersion=1", [&](std::string_view bytes) {
        parser.Feed(bytes, events);
        return events.empty();
      });
  // etcd has compacted nothing yet, so version 1 is either served or refused as too old: both ways
  // are known to us.
  EXPECT_TRUE(absl::IsCancelled(status) || absl::IsOutOfRange(status)) << status;
}

}  // namespace
}  // namespace crowdsurf::controller
