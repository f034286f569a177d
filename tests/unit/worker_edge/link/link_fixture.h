// Link fixture: a LinkServer on a folder of its own in memory, and its events as a queue.
//
// Used by the link's tests. Waits are on the events themselves, never on time; a wait that fails
// ends after 20 s, so that a broken link is a red test and not a hanging one.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/mailbox.h"
#include "base/metrics.h"
#include "worker/edge/link/link_client.h"
#include "worker/edge/link/link_server.h"

namespace crowdsurf::worker {

class LinkFixture : public testing::Test {
 protected:
  LinkFixture() {
    std::string path =
        std::filesystem::exists("/dev/shm") ? "/dev/shm/link-test-XXXXXX" : "/tmp/link-test-XXXXXX";
    dir_ = mkdtemp(path.data());
  }
  ~LinkFixture() override {
    server_.reset();
    std::filesystem::remove_all(dir_);
  }

  LinkServerOptions Options() const {
    LinkServerOptions options;
    options.dir = dir_;
    options.job = "charlm";
    options.worker = "charlm-0-0";
    options.seed = 42;
    options.max_opaque_bytes = 1 << 20;
    options.require_memory = false;
    return options;
  }
  void StartServer(LinkOverlap overlap = LinkOverlap::kDelayed, bool needs_units = false) {
    LinkServerOptions options = Options();
    options.needs_units = needs_units;
    options.overlap = overlap;
    StartServer(options);
  }
  void StartServer(const LinkServerOptions& options) {
    StartServer(options, [this](LinkEvent e) { ASSERT_TRUE(events_.Post(std::move(e))); });
  }
  void StartServer(const LinkServerOptions& options, LinkServer::Sink sink) {
    auto started = LinkServer::Start(options, std::move(sink), Logger(), metrics_);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  // The next event, which must be an E.
  template <class E>
  E Expect() {
    const auto event = events_.Take(std::chrono::steady_clock::now() + std::chrono::seconds(20));
    if (!event) {
      ADD_FAILURE() << "no event came";
      return {};
    }
    if (!std::holds_alternative<E>(*event)) {
      ADD_FAILURE() << "another event came: alternative " << event->index();
      return {};
    }
    return std::get<E>(*event);
  }

  // A state for the trainer to adopt. Pre: the server is started.
  HeldOpaque Held(ByteView bytes) {
    auto room = server_->MakeRoom(bytes.size());
    EXPECT_TRUE(room.ok()) << room.status();
    EXPECT_TRUE((*room)->Write(0, bytes).ok());
    return {*std::move(room), Sha256(bytes)};
  }
  // The state that the trainer gave last.
  Bytes Given() {
    const auto opaque = server_->opaque();
    if (!opaque) return {};
    const ByteView bytes = opaque->state->bytes();
    return {bytes.begin(), bytes.end()};
  }

  std::unique_ptr<LinkClient> Connect(LinkClientOptions options = {}) {
    auto client = LinkClient::Connect(dir_, Seconds(20), std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  // A trainer that has been let go with these parameters. Pre: the server is started.
  std::unique_ptr<LinkClient> Train(std::span<float> params, LinkClientOptions options = {}) {
    auto client = Connect(std::move(options));
    EXPECT_TRUE(client->Register(Model(params.size())).ok());
    Expect<link::TrainerRegistered>();
    server_->LetStart();
    EXPECT_TRUE(client->Start(params, Seconds(20)).ok());
    return client;
  }

  // One that trains, and has published its first step as `number`. Pre: the server is started.
  std::unique_ptr<LinkClient> TrainAndPublish(std::span<float> params, uint64_t number = 1) {
    auto client = Train(params);
    server_->RequestPublish(number);
    client->StepDone(1, 1, params);
    Expect<link::Published>();
    return client;
  }

  static std::vector<LinkTensor> Model(uint64_t n = 100) {
    LinkTensor t;
    t.name = "w";
    t.shape = {n};
    return {t};
  }

  std::string dir_;
  MetricRegistry metrics_;
  Mailbox<LinkEvent> events_{1024};
  std::unique_ptr<LinkServer> server_;
};

}  // namespace crowdsurf::worker
