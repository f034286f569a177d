// An agent's key, id and certificates. The id is compared with another tool's SHA-256; certificates
// come from a signer of the test.
#include "coordinator-free-dht/edge/identity.h"

#include <gmock/gmock.h>
#include <httplib.h>
#include <sys/stat.h>

#include <future>
#include <mutex>
#include <nlohmann/json.hpp>

#include "coordinator-free-dht/edge/certificate.h"
#include "coordinator-free-dht/edge/certificate_keeper.h"
#include "tests/support/eventually.h"
#include "tests/support/hostile_server.h"
#include "tests/support/loopback_server.h"
#include "tests/unit/dht_edge/agent.h"

namespace crowdsurf::dht {
namespace {

constexpr Duration kPatience = Seconds(60);  // a test fails by it, and never waits for it

std::string Text(const Status& status) { return std::string(status.message()); }

TEST(IdentityTest, EachStartIsANewPeerWithTheSameKey) {
  const TemporaryDirectory directory;
  const auto first = Identity::Open(directory.path());
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Identity::Open(directory.path());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*first)->public_key(), (*second)->public_key());
  EXPECT_EQ((*first)->boot(), 1u);
  EXPECT_EQ((*second)->boot(), 2u);
  EXPECT_NE((*first)->id(), (*second)->id());
  EXPECT_EQ((*second)->id(), PeerIdOf((*second)->public_key(), 2));
  struct stat info {};
  ASSERT_EQ(::stat((directory.path() / "key.pem").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(IdentityTest, ThePeerIdIsSha256OfKeyAndBootLittleEndian) {
  // Computed with another tool: 32 bytes 00..1f and the counter 258 as eight bytes 02 01 00...
  PublicKey key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(i);
  EXPECT_EQ(PeerIdOf(key, 258).hex(),
            "fc0aeb363717d0548bff6de025bfb74320389a6cddbdf91b21971953c01a5019");
}

TEST(IdentityTest, SignaturesOfRecordsVerifyAndForgeriesDoNot) {
  const auto identity = Identity::Open("");
  ASSERT_TRUE(identity.ok());
  const Bytes text = {1, 2, 3};
  Signature signature = (*identity)->Sign(text);
  EXPECT_TRUE((*identity)->Verify((*identity)->public_key(), text, signature));
  EXPECT_FALSE((*identity)->Verify((*identity)->public_key(), Bytes{1, 2, 4}, signature));
  signature[0] ^= 1;
  EXPECT_FALSE((*identity)->Verify((*identity)->public_key(), text, signature));
  EXPECT_FALSE((*identity)->Verify(PublicKey{}, text, signature));
}

TEST(IdentityTest, AKeyFileThatIsNoEd25519KeyIsAnError) {
  const TemporaryDirectory directory;
  TestAuthority::Write(directory.path() / "key.pem", "nonsense");
  EXPECT_FALSE(Identity::Open(directory.path()).ok());
  EXPECT_FALSE(Identity::Open("/nonexistent/directory").ok());
}

TEST(IdentityTest, ABootFileThatIsNoNumberIsAnErrorAndNotBootOne) {
  const TemporaryDirectory directory;
  TestAuthority::Write(directory.path() / "boot", "many\n");
  EXPECT_FALSE(Identity::Open(directory.path()).ok());
}

class CertificateTest : public testing::Test {
 protected:
  std::string Leaf(const TestAuthority& authority, const TestAuthority::Leaf& leaf) {
    return authority.SignRequest(*identity_->CertificateRequest("job", "worker-0"), leaf);
  }
  Status Judge(const std::string& chain, const std::string& job = "job") {
    return VerifyPeerCertificate(chain, authority_.ca_pem(), job);
  }
  TestAuthority authority_;
  std::unique_ptr<Identity> identity_ = *Identity::Open("");
};

TEST_F(CertificateTest, AGoodOneIsGood) {
  const std::string chain = Leaf(authority_, {});
  EXPECT_TRUE(Judge(chain).ok()) << Judge(chain);
  EXPECT_EQ(*PublicKeyOfCertificate(chain), identity_->public_key());
}

TEST(ChainTest, TheLeafStandsInItsChainOnce) {
  EXPECT_EQ(ChainWithLeaf("leaf\n", "leaf\nCA\n"), "leaf\nCA\n") << "as a client sees it";
  EXPECT_EQ(ChainWithLeaf("leaf\n", "CA\n"), "leaf\n\nCA\n") << "as a server sees it";
  EXPECT_EQ(ChainWithLeaf("leaf\n", ""), "leaf\n\n");
}

TEST_F(CertificateTest, EveryOtherKindIsRefusedWithItsReason) {
  EXPECT_THAT(Text(Judge("")), testing::HasSubstr("none"));
  EXPECT_THAT(Text(Judge("-----BEGIN CERTIFICATE-----\nnoise\n-----END CERTIFICATE-----\n")),
              testing::HasSubstr("none"));
  EXPECT_THAT(Text(Judge(Leaf(TestAuthority("other"), {}))), testing::HasSubstr("issuer"));
  EXPECT_THAT(Text(Judge(Leaf(TestAuthority("test job"), {}))),
              testing::HasSubstr("signature"));  // a CA of the same name with another key
  EXPECT_THAT(Text(Judge(Leaf(authority_, {.seconds = -60}))), testing::HasSubstr("expired"));
  EXPECT_THAT(Text(Judge(Leaf(authority_, {.names = "DNS:example.org"}))),
              testing::HasSubstr("peer.crowdsurf"));
  EXPECT_THAT(Text(Judge(Leaf(authority_, {}), "another-job")), testing::HasSubstr("another-job"));
  EXPECT_THAT(Text(Judge(authority_.ca_pem())), testing::HasSubstr("CA"));
  const openssl::KeyHandle rsa(EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", size_t{2048}));
  EXPECT_THAT(Text(Judge(authority_.Sign(rsa.get(), {}))), testing::HasSubstr("Ed25519"));
}

// A signer as the contract describes it, over HTTPS with a certificate of the job's CA.
class SignerTest : public testing::Test {
 protected:
  void Serve(std::function<void(const httplib::Request&, httplib::Response&)> handler,
             const TestAuthority::Leaf& leaf = {.names = "IP:127.0.0.1", .usage = "serverAuth"}) {
    const openssl::KeyHandle key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
    const std::string certificate = authority_.Sign(key.get(), leaf);
    const openssl::BioHandle bio = openssl::WriteBio();
    PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    TestAuthority::Write(directory_.path() / "signer.pem", certificate);
    TestAuthority::Write(directory_.path() / "signer-key.pem", openssl::Contents(bio));
    server_ = std::make_unique<httplib::SSLServer>((directory_.path() / "signer.pem").c_str(),
                                                   (directory_.path() / "signer-key.pem").c_str());
    server_->Post("/v1/sign", std::move(handler));
    loopback_.emplace(*server_);
    options_.url = "https://" + loopback_->address();
  }
  void SetUp() override {
    TestAuthority::Write(directory_.path() / "ca.pem", authority_.ca_pem());
    TestAuthority::Write(directory_.path() / "token", "secret\n");
    identity_ = *Identity::Open(directory_.path());
    options_.job = "job";
    options_.worker = "worker-0";
  }
  // Checks the request as a signer does and signs for `seconds`.
  std::function<void(const httplib::Request&, httplib::Response&)> Signing(long seconds) {
    return [this, seconds](const httplib::Request& request, httplib::Response& response) {
      ++requests_;
      if (request.get_header_value("Authorization") != "Bearer secret") {
        response.status = 401;
        return;
      }
      const auto json = nlohmann::json::parse(request.body);
      EXPECT_EQ(json["boot"], identity_->boot());
      const nlohmann::json answer = {
          {"certificate", authority_.SignRequest(json["csr"], {.seconds = seconds})}};
      response.set_content(answer.dump(), "application/json");
    };
  }

  TemporaryDirectory directory_;
  TestAuthority authority_;
  std::unique_ptr<Identity> identity_;
  SignerOptions options_;
  std::unique_ptr<httplib::SSLServer> server_;
  std::atomic<int> requests_{0};
  MetricRegistry metrics_;
  HttpClient client_;
  std::optional<LoopbackServer> loopback_;  // last: it ends before what its answers use
};

TEST_F(SignerTest, TheFirstCertificateIsFetchedOnceAndARestartNeedsNoSigner) {
  Serve(Signing(36'000));
  CertificateKeeper keeper(*identity_, options_, 1, metrics_, Logger());
  ASSERT_TRUE(keeper.WaitForFirst(kPatience).ok());
  EXPECT_TRUE(identity_->RenewAt().ok());
  const auto again = Identity::Open(directory_.path());
  CertificateKeeper second(**again, options_, 1, metrics_, Logger());
  ASSERT_TRUE(second.WaitForFirst(kPatience).ok());
  EXPECT_EQ(requests_, 1);
}

TEST_F(SignerTest, ItIsRenewedWhenTwoThirdsAreOver) {
  // Valid since an hour ago and for two more seconds: two thirds are over at once.
  Serve(Signing(2));
  CertificateKeeper keeper(*identity_, options_, 1, metrics_, Logger());
  ASSERT_TRUE(keeper.WaitForFirst(kPatience).ok());
  keeper.Start();
  Waiter waiter;
  EXPECT_TRUE(waiter.Wait([&] { return requests_ >= 3; }));
  keeper.Stop();
  EXPECT_GE(metrics_.Value("crowdsurf_identity_certificates_total"), 2);
}

TEST_F(SignerTest, AWrongTokenIsAnErrorAtOnce) {
  TestAuthority::Write(directory_.path() / "token", "guess");
  Serve(Signing(600));
  CertificateKeeper keeper(*identity_, options_, 1, metrics_, Logger());
  const Status status = keeper.WaitForFirst(kPatience);
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_EQ(requests_, 1);
}

TEST_F(SignerTest, ASignerWithAnotherCasCertificateIsNotBelieved) {
  Serve(Signing(600));
  TestAuthority::Write(directory_.path() / "ca.pem", TestAuthority("other").ca_pem());
  EXPECT_TRUE(absl::IsUnavailable(RequestCertificate(client_, *identity_, options_)));
  EXPECT_EQ(requests_, 0);
}

// An agent's common name is its pod's, and who makes the pod may choose that of the signer.
TEST_F(SignerTest, ACommonNameMakesNobodyTheSigner) {
  Serve(Signing(600), {.common_name = "127.0.0.1"});
  const Status status = RequestCertificate(client_, *identity_, options_);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(requests_, 0) << "and the token is not shown to it";
}

TEST_F(SignerTest, ASignerThatSaysNothingIsLeftWithTheDeadlineAndAtOnceWhereTheAgentEnds) {
  const HostileServer silent(Hostile::kSilent);
  options_.url = "https://" + silent.address();
  options_.timeout = Milliseconds(200);
  const Status status = RequestCertificate(client_, *identity_, options_);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  options_.timeout = Seconds(3600);
  auto ended = std::async(std::launch::async,
                          [&] { return RequestCertificate(client_, *identity_, options_); });
  ASSERT_TRUE(EventuallyHolds([&] { return silent.open() == 1 && silent.taken() == 2; }));
  client_.Stop();
  EXPECT_TRUE(absl::IsUnavailable(ended.get()));
}

TEST_F(SignerTest, AnAnswerThatIsNoCertificateOfOursIsNotInstalled) {
  const auto stranger = Identity::Open("");
  std::mutex mutex;
  std::string answer;
  Serve([&](const httplib::Request&, httplib::Response& response) {
    const std::lock_guard lock(mutex);
    response.set_content(answer, "application/json");
  });
  const auto csr = (*stranger)->CertificateRequest("job", "worker-0");
  for (const std::string& body :
       {std::string("noise"), std::string("{}"), std::string("{\"certificate\": 7}"),
        nlohmann::json{{"certificate", "noise"}}.dump(),
        nlohmann::json{{"certificate", authority_.SignRequest(*csr, {})}}.dump()}) {
    {
      const std::lock_guard lock(mutex);
      answer = body;
    }
    EXPECT_FALSE(RequestCertificate(client_, *identity_, options_).ok()) << body;
    EXPECT_FALSE(std::filesystem::exists(directory_.path() / "cert.pem"));
  }
  loopback_.reset();  // before what its answers use
}

}  // namespace
}  // namespace crowdsurf::dht
