// An agent without a signer: it says so in its log, and does not only wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "coordinator-free-dht/edge/certificate_keeper.h"
#include "tests/unit/dht_edge/test_authority.h"

namespace crowdsurf::dht {
namespace {

struct Lines : LogSink {
  void Write(LogLevel level, std::string_view, std::string_view message,
             std::initializer_list<LogField> fields) override {
    std::string line = level == LogLevel::kWarning ? "warning " : "";
    line += message;
    for (const LogField& field : fields) line += " " + std::string(field.key) + "=" + field.value;
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  }
  std::mutex mutex;
  std::vector<std::string> lines;
};

TEST(CertificateWaitTest, ASignerThatIsNotReachedIsInTheLog) {
  TemporaryDirectory directory;
  TestAuthority::Write(directory.path() / "ca.pem", TestAuthority().ca_pem());
  TestAuthority::Write(directory.path() / "token", "secret\n");
  const auto identity = Identity::Open(directory.path());
  ASSERT_TRUE(identity.ok());
  // Port 1 of the loopback: nobody listens there.
  const SignerOptions options{.url = "https://127.0.0.1:1", .job = "job", .worker = "worker-0"};
  Lines lines;
  MetricRegistry metrics;
  CertificateKeeper keeper(**identity, options, 1, metrics, Logger(&lines, "agent"));
  EXPECT_TRUE(absl::IsUnavailable(keeper.WaitForFirst(Seconds(1))));
  const std::lock_guard lock(lines.mutex);
  EXPECT_THAT(lines.lines, ::testing::Contains(::testing::AllOf(
                               ::testing::StartsWith("warning no certificate: the signer is not"),
                               ::testing::HasSubstr("127.0.0.1:1"))));
}

}  // namespace
}  // namespace crowdsurf::dht
