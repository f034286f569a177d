// JobAuthorities: the certificate authorities of all jobs, kept as Secrets of the operator's own
// namespace, and who may have a certificate of them.
//
// A CA is made at a job's first pod and read again after a restart; whoever loses a race to make it
// takes the winner's. The signer's server certificate is of a CA of its own, because one port
// serves every job: agents trust their job's CA and that one, which signs nothing else. Grant asks
// the API server who a token is (TokenReview), and the pod whose it is. A Secret cannot have an
// owner in another namespace, so it is labelled with its job, and Sweep deletes what jobs left
// behind that were deleted while no operator ran. Thread-safe: the host's thread and the signer's.
// Bounds: one CA a job. Source: docs/security.md.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "operator/core/job/training_job.h"
#include "operator/edge/kube/kube_client.h"
#include "operator/edge/sign/certificate_authority.h"
#include "operator/edge/sign/grant_budget.h"
#include "operator/edge/sign/token_review.h"

namespace crowdsurf::controller {

struct JobAuthoritiesOptions {
  std::string space;         // the operator's namespace
  std::string watched = {};  // the only namespace whose jobs are this operator's; empty: all
  std::function<WallTime()> clock;
  // Whose a token is: ReviewPodToken's errors. Empty: asked by the client of all else.
  std::function<StatusOr<TokenPod>(const std::string& token)> review = {};
  // For what Grant asks, so that whoever shows tokens delays nobody else; it outlives this.
  // nullptr: the client of all else.
  KubeClient* grants = nullptr;
};

class JobAuthorities {
 public:
  // client outlives this.
  JobAuthorities(KubeClient& client, JobAuthoritiesOptions options);

  // Of the signer's server. Errors: those of the API server.
  StatusOr<std::shared_ptr<const CertificateAuthority>> OfSigner();
  // What the agents of `job` trust, PEM; makes the job's CA when there is none.
  StatusOr<std::string> Trust(const TrainingJob& job);
  // SignerOptions::grant. ResourceExhausted: the pod had too many.
  StatusOr<std::string> Grant(const std::string& token, const std::string& csr);
  // The job is gone, and its key goes with it, once the server says the same. Errors: the API
  // server's.
  Status Forget(const std::string& job_uid);
  // Deletes the keys of jobs that there are no more. alive: uids of those known; of every other
  // that has a key the server is asked. Errors: the API server's; nothing is lost by them.
  Status Sweep(const std::set<std::string>& alive);

 private:
  using Handle = std::shared_ptr<const CertificateAuthority>;
  struct Kept {  // a Secret and whose it is
    std::string secret;
    std::string job;             // its name, as the certificates say it
    nlohmann::json labels = {};  // to make it with; null: it is not made
  };
  StatusOr<Handle> Find(const Kept& kept);
  StatusOr<Handle> Read(const Kept& kept);
  Status Make(const Kept& kept);
  Status Delete(const nlohmann::json& secret);
  StatusOr<bool> IsLeft(const nlohmann::json& secret);

  KubeClient& client_;
  const JobAuthoritiesOptions options_;
  const std::string path_;
  std::mutex grants_mutex_;
  GrantBudget grants_;
  std::mutex mutex_;
  std::map<std::string, Handle> known_;  // by the Secret's name
};

}  // namespace crowdsurf::controller
