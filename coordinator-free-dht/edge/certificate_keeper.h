// CertificateKeeper: gets the agent's certificate from the signer and renews it at two thirds.
//
// One thread that mostly waits. Contract of the signer: HTTPS POST /v1/sign, body {"csr": PEM,
// "boot": n}, header Authorization: Bearer TOKEN, answer {"certificate": PEM chain}; the server is
// verified against ca.pem. The token file is read anew for each request (projected tokens rotate).
// A certificate on disk that is still good needs no signer: an agent restarts without it. Failures
// are retried with jittered back-off for ever, and counted.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/edge/http_client.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/rng.h"
#include "base/status.h"
#include "coordinator-free-dht/edge/identity.h"

namespace crowdsurf::dht {

struct SignerOptions {
  std::string url;  // https://host:port
  std::string job;
  std::string worker;
  Duration timeout = Seconds(5);  // of one request
};

// One request; blocks. On success cert.pem is in place. Unauthenticated and PermissionDenied are
// the signer's 401 and 403, InvalidArgument its 400; Unavailable: try again.
Status RequestCertificate(HttpClient& client, const Identity& identity,
                          const SignerOptions& options);

class CertificateKeeper {
 public:
  // References outlive the keeper.
  CertificateKeeper(const Identity& identity, SignerOptions options, uint64_t seed,
                    MetricRegistry& metrics, Logger logger);
  ~CertificateKeeper();  // stops

  // Waits until cert.pem is good, asking the signer if it must. Error at `patience` (with the last
  // reason), or at once when the signer refuses (401, 403, 400). Logs why it waits, after 2 s and
  // then at each doubling.
  Status WaitForFirst(Duration patience);
  // Starts the renewing thread. After WaitForFirst.
  void Start();
  void Stop();  // cuts a request that is under way

 private:
  void Run();
  bool SleepUntil(WallTime when);  // false: stopping

  const Identity& identity_;
  const SignerOptions options_;
  Rng rng_;
  Logger logger_;
  Counter& renewed_;
  Counter& failed_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  HttpClient client_;
  std::thread thread_;
};

}  // namespace crowdsurf::dht
