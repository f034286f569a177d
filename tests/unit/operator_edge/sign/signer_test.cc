// The signer over HTTPS: whom it gives a certificate, read back with OpenSSL, and whom it refuses
// with which code.
#include "operator/edge/sign/signer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/edge/clock.h"
#include "tests/support/certificate_request.h"
#include "tests/support/raw_client.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class SignerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    authority_ = std::make_unique<CertificateAuthority>(
        std::move(CertificateAuthority::Create("charlm", WallNow()).value()));
    signer_ = std::move(Signer::Start(*authority_, {}, WallNow(), metrics_).value());
    ca_path_ = ::testing::TempDir() + "signer_test_ca_" + std::to_string(getpid()) + ".pem";
    std::ofstream(ca_path_) << authority_->pem();
  }

  httplib::Result Post(const std::string& token, const std::string& body,
                       const char* path = "/v1/sign") {
    httplib::SSLClient client("127.0.0.1", std::stoi(signer_->url().substr(18)));
    client.set_ca_cert_path(ca_path_.c_str());
    client.enable_server_certificate_verification(true);
    return client.Post(path, {{"Authorization", "Bearer " + token}}, body, "application/json");
  }

  MetricRegistry metrics_;
  std::unique_ptr<CertificateAuthority> authority_;
  std::unique_ptr<Signer> signer_;
  std::string ca_path_;
};

TEST_F(SignerTest, SignsForTheWorkerThatTheTokenNames) {
  const auto result =
      Post(signer_->Admit("charlm-3-1"),
           json{{"csr", NewCertificateRequest(EVP_PKEY_ED25519)}, {"boot", 1}}.dump());
  ASSERT_TRUE(result) << "its own certificate must verify against the CA";
  ASSERT_EQ(result->status, 200) << result->body;
  const std::string chain = json::parse(result->body)["certificate"];
  EXPECT_THAT(chain, HasSubstr(authority_->pem()));
  BIO* in = BIO_new_mem_buf(chain.data(), static_cast<int>(chain.size()));
  X509* certificate = PEM_read_bio_X509(in, nullptr, nullptr, nullptr);
  X509* ca = PEM_read_bio_X509(in, nullptr, nullptr, nullptr);
  ASSERT_NE(certificate, nullptr);
  EXPECT_EQ(X509_verify(certificate, X509_get0_pubkey(ca)), 1);
  EXPECT_EQ(X509_check_host(certificate, "peer.crowdsurf", 0, 0, nullptr), 1);
  BIO* out = BIO_new(BIO_s_mem());
  X509_print(out, certificate);
  char* text = nullptr;
  const long length = BIO_get_mem_data(out, &text);
  EXPECT_THAT(std::string(text, static_cast<size_t>(length)),
              HasSubstr("URI:crowdsurf://charlm/charlm-3-1"));
  int days = 0, seconds = 0;
  ASN1_TIME_diff(&days, &seconds, X509_get0_notBefore(certificate),
                 X509_get0_notAfter(certificate));
  EXPECT_EQ(days * 86400 + seconds, 86400 + 300) << "a day, and five minutes for lagging clocks";
  BIO_free(out);
  X509_free(certificate);
  X509_free(ca);
  BIO_free(in);
}

TEST_F(SignerTest, RefusesWhoIsUnknownGoneOrGarbled) {
  const std::string token = signer_->Admit("charlm-3-1");
  const std::string good =
      json{{"csr", NewCertificateRequest(EVP_PKEY_ED25519)}, {"boot", 1}}.dump();
  EXPECT_EQ(Post("nonsense", good)->status, 401);
  EXPECT_EQ(Post(token, "not json")->status, 400);
  EXPECT_EQ(Post(token, "{\"csr\": 3}")->status, 400);
  EXPECT_EQ(Post(token, json{{"csr", "not pem"}}.dump())->status, 400);
  EXPECT_EQ(Post(token, json{{"csr", NewCertificateRequest(EVP_PKEY_EC)}}.dump())->status, 400);
  EXPECT_EQ(
      Post(token, json{{"csr", NewCertificateRequest(EVP_PKEY_ED25519, /*spoil=*/true)}}.dump())
          ->status,
      400);
  EXPECT_EQ(Post(token, std::string(100'000, 'x'))->status, 413);
  signer_->Dismiss("charlm-3-1");
  EXPECT_EQ(Post(token, good)->status, 403);
  EXPECT_EQ(metrics_.Value("crowdsurf_signer_refused_total", {{"reason", "request"}}), 5);
  EXPECT_EQ(metrics_.Value("crowdsurf_signer_refused_total", {{"reason", "token"}}), 1);
  EXPECT_EQ(metrics_.Value("crowdsurf_signer_refused_total", {{"reason", "worker"}}), 1);
  EXPECT_EQ(metrics_.Value("crowdsurf_signer_granted_total"), 0);
}

// More of them than the signer has threads; each is cut after five seconds of its own.
TEST_F(SignerTest, ClientsThatSendNothingDelayNoCertificate) {
  std::vector<RawClient> silent;
  silent.reserve(12);
  for (int i = 0; i < 12; ++i) silent.emplace_back(std::stoi(signer_->url().substr(18)));
  const auto result =
      Post(signer_->Admit("charlm-3-1"),
           json{{"csr", NewCertificateRequest(EVP_PKEY_ED25519)}, {"boot", 1}}.dump());
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 200) << result->body;
  for (RawClient& one : silent) EXPECT_TRUE(one.StaysOpenFor(0)) << "it waited for this one's end";
}

// Nothing makes the server's certificate anew while the operator runs.
TEST(CertificateAuthorityTest, TheServersCertificateOutlivesALongRunOfTheOperator) {
  const auto authority = CertificateAuthority::Create("job", WallNow());
  ASSERT_TRUE(authority.ok()) << authority.status();
  const auto server = authority->MakeServer({"localhost"}, WallNow());
  ASSERT_TRUE(server.ok()) << server.status();
  time_t in_three_years = time(nullptr) + time_t{3 * 365} * 86'400;
  EXPECT_EQ(X509_cmp_time(X509_get0_notAfter(server->certificate.get()), &in_three_years), 1);
}

// In a cluster the API server decides (JobAuthorities); each answer has its code and its counter.
TEST_F(SignerTest, EachAnswerOfTheDecidersHasACode) {
  std::mutex mutex;  // the server's threads read the answer
  Status answer;
  const auto read = [&] {
    const std::lock_guard lock(mutex);
    return answer;
  };
  const auto write = [&](const Status& next) {
    const std::lock_guard lock(mutex);
    answer = next;
  };
  SignerOptions options;
  options.grant = [&](const std::string& token, const std::string&) -> StatusOr<std::string> {
    EXPECT_EQ(token, "t");
    if (const Status status = read(); !status.ok()) return status;
    return std::string("chain");
  };
  options.report = [&](const std::string&, const std::string&) { return read(); };
  signer_ = std::move(Signer::Start(*authority_, options, WallNow(), metrics_).value());
  const std::string good = json{{"csr", "request"}}.dump();
  struct Row {
    Status status;
    int granted, reported;
  };
  for (const Row& row :
       {Row{absl::OkStatus(), 200, 202}, Row{absl::UnauthenticatedError(""), 401, 401},
        Row{absl::PermissionDeniedError(""), 403, 403},
        Row{absl::InvalidArgumentError(""), 400, 400}, Row{absl::UnavailableError(""), 503, 503},
        Row{absl::ResourceExhaustedError(""), 429, 429},
        Row{absl::FailedPreconditionError(""), 503, 421}}) {
    write(row.status);
    EXPECT_EQ(Post("t", good)->status, row.granted) << row.status;
    EXPECT_EQ(Post("t", good, "/v1/deaths")->status, row.reported) << row.status;
  }
  write(absl::OkStatus());
  EXPECT_EQ(json::parse(Post("t", good)->body)["certificate"], "chain");
  EXPECT_EQ(Post("t", "{}")->status, 400) << "no request";
  EXPECT_EQ(metrics_.Value("crowdsurf_signer_granted_total"), 2);
  EXPECT_EQ(metrics_.Value("crowdsurf_signer_refused_total", {{"reason", "token"}}), 1);
  EXPECT_EQ(metrics_.Value("crowdsurf_signer_refused_total", {{"reason", "worker"}}), 1);
  EXPECT_EQ(metrics_.Value("crowdsurf_signer_refused_total", {{"reason", "request"}}), 4);
  EXPECT_EQ(metrics_.Value("crowdsurf_signer_refused_total", {{"reason", "too_often"}}), 1);
}

TEST_F(SignerTest, SaysThatAPortIsTaken) {
  const int port = std::stoi(signer_->url().substr(18));
  const auto second = Signer::Start(*authority_, {"127.0.0.1", port}, WallNow(), metrics_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr("127.0.0.1:" + std::to_string(port)));
}

}  // namespace
}  // namespace crowdsurf::controller
