#include "operator/edge/job_authorities.h"

#include <absl/strings/escaping.h>

#include "operator/core/json_path.h"
#include "operator/core/observe.h"
#include "operator/edge/token_review.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr char kSignerSecret[] = "crowdsurf-signer-ca";

std::string SecretName(const std::string& job_uid) { return "crowdsurf-ca-" + job_uid; }

std::string Decode(const std::string& base64) {
  std::string out;
  return absl::Base64Unescape(base64, &out) ? out : std::string();
}

}  // namespace

JobAuthorities::JobAuthorities(KubeClient& client, std::string space,
                               std::function<WallTime()> clock)
    : client_(client),
      path_("/api/v1/namespaces/" + std::move(space) + "/secrets"),
      clock_(std::move(clock)) {}

StatusOr<JobAuthorities::Handle> JobAuthorities::Read(const std::string& secret,
                                                      const std::string& job) {
  ASSIGN_OR_RETURN(const json object, client_.Get(path_ + "/" + secret));
  ASSIGN_OR_RETURN(CertificateAuthority authority,
                   CertificateAuthority::Load(job, Decode(TextUnder(object, "/data/ca.pem")),
                                              Decode(TextUnder(object, "/data/ca-key.pem"))));
  return std::make_shared<const CertificateAuthority>(std::move(authority));
}

Status JobAuthorities::Make(const std::string& secret, const std::string& job) {
  ASSIGN_OR_RETURN(const CertificateAuthority authority,
                   CertificateAuthority::Create(job, clock_()));
  ASSIGN_OR_RETURN(const std::string key, authority.KeyPem());
  const auto made = client_.Create(
      path_, {{"metadata",
               {{"name", secret}, {"labels", {{"app.kubernetes.io/managed-by", "crowdsurf"}}}}},
              {"stringData", {{"ca.pem", authority.pem()}, {"ca-key.pem", key}}}});
  return absl::IsAlreadyExists(made.status()) ? absl::OkStatus() : made.status();
}

StatusOr<JobAuthorities::Handle> JobAuthorities::Find(const std::string& secret,
                                                      const std::string& job, bool make) {
  const std::lock_guard lock(mutex_);
  const auto it = known_.find(secret);
  if (it != known_.end()) return it->second;
  StatusOr<Handle> found = Read(secret, job);
  if (absl::IsNotFound(found.status()) && make) {
    RETURN_IF_ERROR(Make(secret, job));
    found = Read(secret, job);  // ours, or that of whoever was first
  }
  if (found.ok()) known_[secret] = *found;
  return found;
}

StatusOr<std::shared_ptr<const CertificateAuthority>> JobAuthorities::OfSigner() {
  return Find(kSignerSecret, "signer", true);
}

StatusOr<std::string> JobAuthorities::Trust(const TrainingJob& job) {
  ASSIGN_OR_RETURN(const Handle own, Find(SecretName(job.uid), job.name, true));
  ASSIGN_OR_RETURN(const Handle signer, OfSigner());
  return own->pem() + signer->pem();
}

StatusOr<std::string> JobAuthorities::Grant(const std::string& token, const std::string& csr) {
  ASSIGN_OR_RETURN(const TokenPod claim, ReviewPodToken(client_, token));
  const auto& [space, name, uid] = claim;
  const auto pod = client_.Get("/api/v1/namespaces/" + space + "/pods/" + name);
  if (!pod.ok()) return absl::PermissionDeniedError("the token's pod is gone");
  const auto worker = ObservePod(*pod);
  if (!worker || worker->facts.uid != uid) {
    return absl::PermissionDeniedError("the token's pod is no worker");
  }
  // An owner reference is only what its author says: the job must be there, in that namespace.
  const std::string job = worker->job.substr(worker->job.find('/') + 1);
  const auto owner =
      client_.Get("/apis/crowdsurf.io/v1alpha1/namespaces/" + space + "/trainingjobs/" + job);
  if (!owner.ok() || TextUnder(*owner, "/metadata/uid") != worker->job_uid) {
    return absl::PermissionDeniedError("the token's pod belongs to no job of its namespace");
  }
  ASSIGN_OR_RETURN(const Handle authority, Find(SecretName(worker->job_uid), job, false));
  return authority->SignAgent(csr, name, clock_());
}

void JobAuthorities::Forget(const std::string& job_uid) {
  {
    const std::lock_guard lock(mutex_);
    known_.erase(SecretName(job_uid));
  }
  (void)client_.Delete(path_ + "/" + SecretName(job_uid));
}

}  // namespace crowdsurf::controller
