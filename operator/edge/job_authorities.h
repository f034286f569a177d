// JobAuthorities: the certificate authorities of all jobs, kept as Secrets of the operator's own
// namespace, and who may have a certificate of them.
//
// A CA is made at a job's first pod and read again after a restart; whoever loses a race to make it
// takes the winner's. The signer's server certificate is of a CA of its own, because one port
// serves every job: agents trust their job's CA and that one, which signs nothing else. Grant asks
// the API server who a token is (TokenReview), and the pod whose it is. Thread-safe: the host's
// thread and the signer's. Bounds: one CA a job. Source: DESIGN.md 4 and 11.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "operator/core/training_job.h"
#include "operator/edge/certificate_authority.h"
#include "operator/edge/kube_client.h"

namespace crowdsurf::controller {

class JobAuthorities {
 public:
  // space: the operator's namespace. client outlives this.
  JobAuthorities(KubeClient& client, std::string space, std::function<WallTime()> clock);

  // Of the signer's server. Errors: those of the API server.
  StatusOr<std::shared_ptr<const CertificateAuthority>> OfSigner();
  // What the agents of `job` trust, PEM; makes the job's CA when there is none.
  StatusOr<std::string> Trust(const TrainingJob& job);
  // SignerOptions::grant.
  StatusOr<std::string> Grant(const std::string& token, const std::string& csr);
  // The job is gone, and its key with it.
  void Forget(const std::string& job_uid);

 private:
  using Handle = std::shared_ptr<const CertificateAuthority>;
  StatusOr<Handle> Find(const std::string& secret, const std::string& job, bool make);
  StatusOr<Handle> Read(const std::string& secret, const std::string& job);
  Status Make(const std::string& secret, const std::string& job);

  KubeClient& client_;
  const std::string path_;
  const std::function<WallTime()> clock_;
  std::mutex mutex_;
  std::map<std::string, Handle> known_;  // by the Secret's name
};

}  // namespace crowdsurf::controller
