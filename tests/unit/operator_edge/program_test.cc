// crowdsurf-operator as a process: its flags, its exits, and that it starts and stops against an
// API server of the test. docs/signals.md has its exits; docs/kubernetes.md its ports.
#include <absl/strings/escaping.h>
#include <gmock/gmock.h>
#include <httplib.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>

#include "base/edge/clock.h"
#include "base/edge/descriptors.h"
#include "base/edge/files.h"
#include "operator/edge/local/process.h"
#include "operator/edge/sign/certificate_authority.h"
#include "tests/support/certificate_request.h"
#include "tests/support/eventually.h"
#include "tests/unit/operator_edge/kube/kube_cluster_fixture.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr char kLease[] =
    "/apis/coordination.k8s.io/v1/namespaces/system/leases/crowdsurf-operator";

class ProgramTest : public testing::Test {
 protected:
  // before: a program that starts it.
  static Process Start(std::vector<std::string> flags,
                       std::vector<std::string> environment = {"KUBECONFIG=/nowhere"},
                       const std::vector<std::string>& before = {}) {
    const auto beside = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    flags.insert(flags.begin(), beside / "crowdsurf-operator");
    flags.insert(flags.begin(), before.begin(), before.end());
    for (const char* name : {"TSAN_OPTIONS", "ASAN_OPTIONS"}) {  // of a sanitized program
      if (const char* value = std::getenv(name))
        environment.push_back(absl::StrCat(name, "=", value));
    }
    return std::move(Process::Start({flags, std::move(environment), ""}).value());
  }
  static int End(Process& process) {
    while (!process.Reap()) {
      pollfd set[] = {{process.pidfd(), POLLIN, 0}, {process.output(), POLLIN, 0}};
      poll(set, 2, 30'000);
      process.Drain();
    }
    return *process.exit_code();
  }
  struct Ended {
    int code;
    std::string said;
  };
  static Ended Run(std::vector<std::string> flags,
                   std::vector<std::string> environment = {"KUBECONFIG=/nowhere"}) {
    Process process = Start(std::move(flags), std::move(environment));
    const int code = End(process);
    return {code, process.kept_output()};
  }
};

TEST_F(ProgramTest, BadFlagsAreTwoAndNothingIsTried) {
  const std::vector<std::string> good = {"--namespace", "system", "--agent-image", "i"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), good.begin(), good.end());
    return Run(more).code;
  };
  EXPECT_EQ(Run({"--namespace", "system"}).code, 2) << "--agent-image is required";
  EXPECT_EQ(with({"--spot-placement", "Sometimes"}), 2);
  EXPECT_EQ(with({"--max-workers-per-job", "0"}), 2);
  EXPECT_EQ(with({"--max-workers-per-job", "100001"}), 2);
  EXPECT_EQ(with({"--log-level", "loud"}), 2);
  EXPECT_EQ(with({"--no-such-flag"}), 2);
  const Ended homeless = Run({"--agent-image", "i"});
  EXPECT_EQ(homeless.code, 2);
  EXPECT_THAT(homeless.said, HasSubstr("--namespace: is required outside of a cluster"));
}

TEST_F(ProgramTest, WithoutAClusterItSaysWhyAndEndsWithOne) {
  const Ended ended = Run({"--agent-image", "i"}, {"KUBECONFIG=/nowhere", "POD_NAMESPACE=system"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.said, HasSubstr("does not start"));
  EXPECT_THAT(ended.said, HasSubstr("/nowhere"));
}

TEST_F(ProgramTest, ItsDefaultsAreThoseOfThePageAndOfTheChart) {
  const Ended help = Run({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const auto& [flag, value] : {std::pair("sign-port", "9443"),
                                    {"health-port", "8081"},
                                    {"metrics-port", "8443"},
                                    {"max-workers-per-job", "5000"},
                                    {"spot-placement", "Preferred"},
                                    {"listen", "::"},
                                    {"guard-metrics", "(1|true)"},
                                    {"leader-elect", "(1|true)"},
                                    {"log-level", "info"}}) {
    const std::regex shown("--" + std::string(flag) + " .*[=\\[]" + value + "(\\s|\\])");
    EXPECT_TRUE(std::regex_search(help.said, shown)) << flag << " in\n" << help.said;
  }
}

// An operator that has its signer's key and no jobs.
class ServingProgramTest : public ProgramTest {
 protected:
  void SetUp() override {
    const auto authority = CertificateAuthority::Create("signer", WallNow()).value();
    const std::string key = authority.KeyPem().value();
    api_.Put("/api/v1/namespaces/system/secrets/crowdsurf-signer-ca", 200,
             {{"metadata", {{"labels", {{"app.kubernetes.io/managed-by", "crowdsurf"}}}}},
              {"data",
               {{"ca.pem", absl::Base64Escape(authority.pem())},
                {"ca-key.pem", absl::Base64Escape(key)}}}});
    for (const char* kind :
         {"/apis/crowdsurf.io/v1alpha1/trainingjobs", "/api/v1/pods", "/api/v1/nodes"}) {
      api_.Put(kind, 200, List(json::array()));
    }
    config_ = testing::TempDir() + "operator_program_test_" + std::to_string(getpid());
    std::ofstream(config_)
        << "{current-context: c, contexts: [{name: c, context: {cluster: k, user: "
           "u}}], users: [{name: u, user: {}}], clusters: [{name: k, cluster: "
           "{server: 'http://127.0.0.1:"
        << api_.endpoint().port << "'}}]}";
  }
  void TearDown() override { std::filesystem::remove(config_); }
  Process Serve(std::vector<std::string> more, const std::vector<std::string>& before = {}) {
    std::vector<std::string> flags = {"--namespace",    "system",    "--agent-image", "i",
                                      "--signer-host",  "localhost", "--listen",      "127.0.0.1",
                                      "--sign-port",    "0",         "--health-port", "0",
                                      "--metrics-port", "0"};
    flags.insert(flags.end(), more.begin(), more.end());
    return Start(flags, {"KUBECONFIG=" + config_}, before);
  }
  // The port of that name in the line that says that it started; 0: it never did.
  static int PortOf(Process& process, const std::string& name) {
    const std::regex told(" started .*" + name + "=(\\d+)");
    std::smatch found;
    (void)EventuallyHolds([&] {
      process.Drain();
      return std::regex_search(process.kept_output(), found, told) || process.Reap();
    });
    EXPECT_FALSE(found.empty()) << process.kept_output();
    return found.empty() ? 0 : std::stoi(found[1]);
  }
  static int CodeOf(httplib::Client& client, const char* path) {
    const auto result = client.Get(path);
    return result ? result->status : 0;
  }

  FakeApiServer api_;
  std::string config_;
};

TEST_F(ServingProgramTest, ItServesItsPagesAndEndsWithZeroWhenItIsTold) {
  Process process = Serve({"--leader-elect", "false", "--guard-metrics", "false"});
  httplib::Client health("127.0.0.1", PortOf(process, "health_port"));
  httplib::Client metrics("127.0.0.1", PortOf(process, "metrics_port"));
  EXPECT_TRUE(EventuallyHolds([&] { return CodeOf(health, "/readyz") == 200; }));
  EXPECT_EQ(CodeOf(health, "/healthz"), 200);
  const auto page = metrics.Get("/metrics");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_THAT(page->body, HasSubstr("crowdsurf_operator_cache_objects"));
  EXPECT_EQ(api_.Asked(kLease), 0) << "it is alone";
  EXPECT_THAT(ReadFile(absl::StrCat("/proc/", process.pid(), "/limits"), 1 << 16).value_or(""),
              ContainsRegex("Max core file size +0 +0 "))
      << "it holds keys";
  process.Signal(SIGTERM);
  EXPECT_EQ(End(process), 0) << process.kept_output();
}

TEST_F(ServingProgramTest, UnlessToldOtherwiseItElectsALeaderAndGuardsItsMetrics) {
  Process process = Serve({});
  httplib::SSLClient metrics("127.0.0.1", PortOf(process, "metrics_port"));
  metrics.enable_server_certificate_verification(false);
  const auto page = metrics.Get("/metrics");
  ASSERT_TRUE(page) << "HTTPS";
  EXPECT_EQ(page->status, 401);
  EXPECT_TRUE(EventuallyHolds([&] { return api_.Asked(kLease) > 0; }));
  process.Signal(SIGINT);
  EXPECT_EQ(End(process), 0) << process.kept_output();
}

// Strangers hold as many connections as there are descriptors, and more.
class FloodedProgramTest : public ServingProgramTest {
 protected:
  static constexpr int kIdle = 1100;  // at each port
  void SetUp() override {
    ServingProgramTest::SetUp();
    api_.Put(std::string("POST ") + std::string(kLease).substr(0, std::string(kLease).rfind('/')),
             201, json::object());
    api_.Put("POST /apis/authentication.k8s.io/v1/tokenreviews", 201, ReviewOfPod0(true));
    api_.Put("/api/v1/namespaces/team/pods/crowd-0-1", 200, Pod(0));
    api_.Put("/apis/crowdsurf.io/v1alpha1/namespaces/team/trainingjobs/crowd", 200, Job());
    const auto ca = CertificateAuthority::Create("crowd", WallNow()).value();
    api_.Put("/api/v1/namespaces/system/secrets/crowdsurf-ca-job-uid", 200,
             {{"metadata", {{"labels", {{"app.kubernetes.io/managed-by", "crowdsurf"}}}}},
              {"data",
               {{"ca.pem", absl::Base64Escape(ca.pem())},
                {"ca-key.pem", absl::Base64Escape(ca.KeyPem().value())}}}});
  }
  void TearDown() override {
    for (const int connection : idle_) close(connection);
    ServingProgramTest::TearDown();
  }
  void Flood(int port) {
    for (int i = 0; i < kIdle; ++i) {
      idle_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in at{};
      at.sin_family = AF_INET;
      at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      at.sin_port = htons(static_cast<uint16_t>(port));
      ASSERT_EQ(connect(idle_.back(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0)
          << i << " " << std::strerror(errno);
    }
  }
  // As an agent that comes asks for its certificate; 0: no answer.
  static int Join(int port) {
    const json claims = {
        {"aud", {"crowdsurf"}},
        {"exp", 4'000'000'000},
        {"kubernetes.io",
         {{"namespace", "team"}, {"pod", {{"name", "crowd-0-1"}, {"uid", "uid-0"}}}}}};
    httplib::SSLClient client("127.0.0.1", port);
    client.enable_server_certificate_verification(false);
    client.set_read_timeout(30);
    const auto result = client.Post(
        "/v1/sign",
        {{"Authorization", "Bearer e30." + absl::WebSafeBase64Escape(claims.dump()) + ".c2ln"}},
        json{{"csr", NewCertificateRequest()}, {"boot", 1}}.dump(), "application/json");
    return result ? result->status : 0;
  }
  static double ResidentMib(const Process& process) {
    std::ifstream status("/proc/" + std::to_string(process.pid()) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("VmRSS:", 0) == 0) return std::stod(line.substr(6)) / 1024;
    }
    return 0;
  }
  int Renewals() { return api_.Asked(absl::StrCat("GET ", kLease)); }
  static bool Leads(httplib::Client& metrics) {
    const auto page = metrics.Get("/metrics");
    return page &&
           std::regex_search(page->body, std::regex("leader_election_master_status\\S* 1\\b"));
  }

  std::vector<int> idle_;
};

TEST_F(FloodedProgramTest, IdleConnectionsAtEveryPortCostNoJoinerAndNoLead) {
  if (RaiseDescriptorLimit() < 4 * kIdle) GTEST_SKIP() << "too few descriptors for the strangers";
  Process process = Serve({"--guard-metrics", "false"},
                          {"/bin/sh", "-c", "ulimit -n 1024 && exec \"$0\" \"$@\""});
  const int sign = PortOf(process, "sign_port");
  const int health_port = PortOf(process, "health_port");
  const int metrics_port = PortOf(process, "metrics_port");
  httplib::Client health("127.0.0.1", health_port), metrics("127.0.0.1", metrics_port);
  ASSERT_TRUE(EventuallyHolds([&] { return CodeOf(health, "/readyz") == 200 && Leads(metrics); }));
  ASSERT_EQ(Join(sign), 200);
  const double normal = ResidentMib(process);
  double most = normal;
  int joined = 0, tried = 0;
  for (const int port : {sign, health_port, metrics_port}) {
    Flood(port);
    for (int i = 0; i < 4; ++i) joined += Join(sign) == 200, ++tried;
    EXPECT_EQ(CodeOf(health, "/healthz"), 200);
    EXPECT_TRUE(Leads(metrics));
    most = std::max(most, ResidentMib(process));
  }
  const int renewed = Renewals();
  EXPECT_TRUE(EventuallyHolds([&] { return Renewals() > renewed; }));
  EXPECT_TRUE(Leads(metrics)) << "it renews its Lease";
  std::printf(
      "%d idle connections at each of three ports, 1,024 descriptors: %d of %d joiners "
      "refused; %.1f MiB, and %.1f MiB more\n",
      kIdle, tried - joined, tried, normal, most - normal);
  EXPECT_EQ(joined, tried);
  EXPECT_LE(most - normal, 64);
  process.Signal(SIGTERM);
  EXPECT_EQ(End(process), 0) << process.kept_output();
}

}  // namespace
}  // namespace crowdsurf::controller
