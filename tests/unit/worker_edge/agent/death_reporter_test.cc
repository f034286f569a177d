// Lost workers are told to the operator over HTTPS, and an operator that is away costs nothing.
#include "worker/edge/agent/death_reporter.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/mailbox.h"
#include "tests/support/eventually.h"
#include "tests/support/loopback_server.h"
#include "tests/unit/dht_edge/test_authority.h"
#include "tests/unit/worker_edge/state/scratch_folder.h"

namespace crowdsurf::worker {
namespace {

constexpr std::chrono::seconds kPatience{30};  // a test fails by it, and never waits for it

class DeathReporterTest : public testing::Test {
 protected:
  void SetUp() override {
    const dht::openssl::KeyHandle key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
    const dht::openssl::BioHandle bio = dht::openssl::WriteBio();
    PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    Write("server.pem",
          authority_.Sign(key.get(), {.names = "IP:127.0.0.1", .usage = "serverAuth"}));
    Write("server-key.pem", dht::openssl::Contents(bio));
    Write("ca.pem", authority_.ca_pem());
    Write("token", "secret\n");
    server_ = std::make_unique<httplib::SSLServer>((folder_ / "server.pem").c_str(),
                                                   (folder_ / "server-key.pem").c_str());
    server_->set_keep_alive_max_count(1);
    server_->Post("/v1/deaths", [this](const httplib::Request& request, httplib::Response& reply) {
      EXPECT_EQ(request.get_header_value("Authorization"), "Bearer secret");
      reply.status = answer_(++requests_);
      (void)seen_.Post(request.body);
    });
    loopback_.emplace(*server_);
    options_.url = "https://" + loopback_->address();
    options_.agent_dir = folder_.path();
    options_.backoff = {Milliseconds(1), Milliseconds(1)};
  }
  void Write(const std::string& name, const std::string& text) {
    dht::TestAuthority::Write(folder_ / name, text);
  }
  std::string Seen() {
    return seen_.Take(std::chrono::steady_clock::now() + kPatience).value_or("nothing");
  }
  // Until the counter has moved, naming somebody again and again as an agent does.
  bool Until(DeathReporter& reporter, const char* result, double count) {
    return EventuallyHolds([&] {
      const double now =
          metrics_.Value("crowdsurf_worker_death_reports_total", {{"result", result}});
      if (now >= count) return true;
      reporter.Report({"w1"});
      return false;
    });
  }

  ScratchFolder folder_;
  dht::TestAuthority authority_;
  std::function<int(int)> answer_ = [](int) { return 202; };
  std::atomic<int> requests_{0};
  Mailbox<std::string> seen_{4096};
  std::unique_ptr<httplib::SSLServer> server_;
  DeathReporterOptions options_;
  MetricRegistry metrics_;
  std::optional<LoopbackServer> loopback_;  // last: it ends before what its answers use
};

TEST_F(DeathReporterTest, NamesTheLostToTheOneWhoLeads) {
  answer_ = [](int request) { return request < 3 ? 421 : 202; };
  DeathReporter reporter(options_, 1, metrics_, Logger());
  reporter.Report({});
  reporter.Report({"crowd-3-1", "crowd-4-2"});
  const nlohmann::json wanted = {{"dead", {"crowd-3-1", "crowd-4-2"}}};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Seen(), wanted.dump()) << "asked again until it leads";
  EXPECT_TRUE(Until(reporter, "taken", 2));
}

TEST_F(DeathReporterTest, WhereNobodyTakesReportsItAsksOnce) {
  answer_ = [](int) { return 404; };
  DeathReporter reporter(options_, 1, metrics_, Logger());
  reporter.Report({"w1"});
  Seen();
  EXPECT_TRUE(Until(reporter, "held_back", 20));
  EXPECT_EQ(requests_, 1);
}

TEST_F(DeathReporterTest, FailuresAreCountedAndOvercome) {
  answer_ = [](int request) { return request == 1 ? 503 : 202; };
  DeathReporter reporter(options_, 1, metrics_, Logger());
  EXPECT_TRUE(Until(reporter, "refused", 1));
  EXPECT_TRUE(Until(reporter, "taken", 1));
  Write("ca.pem", dht::TestAuthority("somebody else").ca_pem());
  const int before = requests_;
  EXPECT_TRUE(Until(reporter, "unreachable", 2)) << "a server that cannot be verified";
  EXPECT_LE(requests_ - before, 1) << "and the token is not shown to it";
}

}  // namespace
}  // namespace crowdsurf::worker
