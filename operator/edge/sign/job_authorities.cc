#include "operator/edge/sign/job_authorities.h"

#include <absl/strings/escaping.h>

#include "operator/core/job/json_path.h"
#include "operator/core/job/ownership.h"
#include "operator/core/observe/observe.h"
#include "operator/core/pods/pod_builder.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr char kSignerSecret[] = "crowdsurf-signer-ca";
constexpr std::string_view kOfJobs = "crowdsurf-ca-";
constexpr char kManagedBy[] = "app.kubernetes.io/managed-by", kManager[] = "crowdsurf";
// Longer than any watch can be deaf.
constexpr Duration kUnsaid = Seconds(3600);
constexpr char kJobSpaceLabel[] = "crowdsurf.io/job-namespace";

std::string SecretName(const std::string& job_uid) { return std::string(kOfJobs) + job_uid; }

std::string LabelOf(const json& secret, std::string_view label) {
  const json* value = Member(At(secret, "metadata.labels"), label);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

bool IsOurs(const json& secret) { return LabelOf(secret, kManagedBy) == kManager; }

std::string Decode(const std::string& base64) {
  std::string out;
  return absl::Base64Unescape(base64, &out) ? out : std::string();
}

}  // namespace

JobAuthorities::JobAuthorities(KubeClient& client, JobAuthoritiesOptions options)
    : client_(client),
      options_(std::move(options)),
      path_("/api/v1/namespaces/" + options_.space + "/secrets") {}

StatusOr<JobAuthorities::Handle> JobAuthorities::Read(const Kept& kept) {
  ASSIGN_OR_RETURN(const json object, client_.Get(path_ + "/" + kept.secret));
  if (!IsOurs(object)) {
    return absl::FailedPreconditionError("Secret/" + kept.secret + " of namespace " +
                                         options_.space + " is there and is " + OwnerText(object));
  }
  ASSIGN_OR_RETURN(CertificateAuthority authority,
                   CertificateAuthority::Load(kept.job, Decode(TextUnder(object, "/data/ca.pem")),
                                              Decode(TextUnder(object, "/data/ca-key.pem"))));
  return std::make_shared<const CertificateAuthority>(std::move(authority));
}

Status JobAuthorities::Make(const Kept& kept) {
  ASSIGN_OR_RETURN(const CertificateAuthority authority,
                   CertificateAuthority::Create(kept.job, options_.clock()));
  ASSIGN_OR_RETURN(const std::string key, authority.KeyPem());
  const auto made =
      client_.Create(path_, {{"metadata", {{"name", kept.secret}, {"labels", kept.labels}}},
                             {"stringData", {{"ca.pem", authority.pem()}, {"ca-key.pem", key}}}});
  // Another replica was first, and its key is the one to read.
  return absl::IsAlreadyExists(made.status()) ? absl::OkStatus() : made.status();
}

StatusOr<JobAuthorities::Handle> JobAuthorities::Find(const Kept& kept) {
  const std::lock_guard lock(mutex_);
  // The lock is held to the end, so that two pods at once do not make two keys.
  const auto it = known_.find(kept.secret);
  if (it != known_.end()) return it->second;
  StatusOr<Handle> found = Read(kept);
  if (absl::IsNotFound(found.status()) && !kept.labels.is_null()) {
    RETURN_IF_ERROR(Make(kept));
    found = Read(kept);  // ours, or that of whoever was first
  }
  if (found.ok()) known_[kept.secret] = *found;
  return found;
}

StatusOr<std::shared_ptr<const CertificateAuthority>> JobAuthorities::OfSigner() {
  return Find({kSignerSecret, "signer", {{kManagedBy, kManager}}});
}

StatusOr<std::string> JobAuthorities::Trust(const TrainingJob& job) {
  const json labels = {{kManagedBy, kManager},
                       {kJobSpaceLabel, job.space},
                       {std::string(kJobNameLabel), job.name},
                       {std::string(kJobUidLabel), job.uid}};
  ASSIGN_OR_RETURN(const Handle own, Find({SecretName(job.uid), job.name, labels}));
  ASSIGN_OR_RETURN(const Handle signer, OfSigner());
  return own->pem() + signer->pem();
}

StatusOr<std::string> JobAuthorities::Grant(const std::string& token, const std::string& csr) {
  KubeClient& client = options_.grants != nullptr ? *options_.grants : client_;
  ASSIGN_OR_RETURN(const TokenPod claim,
                   options_.review ? options_.review(token) : ReviewPodToken(client, token));
  const auto& [space, name, uid, issuer] = claim;
  const auto pod = client.Get("/api/v1/namespaces/" + space + "/pods/" + name);
  if (absl::IsNotFound(pod.status())) {
    return absl::PermissionDeniedError("the token's pod is gone");
  }
  RETURN_IF_ERROR(pod.status());
  const auto worker = ObservePod(*pod);
  // A pod that was made anew under the name is not the token's.
  if (!worker || worker->facts.uid != uid) {
    return absl::PermissionDeniedError("the token's pod is no worker");
  }
  // An owner reference is only what its author says: the job must be there, in that namespace.
  const std::string job = worker->job.substr(worker->job.find('/') + 1);
  if (!IsObjectName(job)) {
    return absl::PermissionDeniedError("the token's pod belongs to what cannot be a job");
  }
  const auto owner =
      client.Get("/apis/crowdsurf.io/v1alpha1/namespaces/" + space + "/trainingjobs/" + job);
  if (!owner.ok() && !absl::IsNotFound(owner.status())) return owner.status();
  if (!owner.ok() || TextUnder(*owner, "/metadata/uid") != worker->job_uid) {
    return absl::PermissionDeniedError("the token's pod belongs to no job of its namespace");
  }
  ASSIGN_OR_RETURN(const Handle authority, Find({SecretName(worker->job_uid), job}));
  {
    const Time now = Time::FromNanoseconds(options_.clock().nanoseconds());
    const std::lock_guard lock(grants_mutex_);
    if (!grants_.Take(uid, now)) {
      return absl::ResourceExhaustedError("this pod had too many certificates");
    }
  }
  return authority->SignAgent(csr, name, options_.clock());
}

// Only what bears our label, and only the one that was seen.
Status JobAuthorities::Delete(const json& secret) {
  if (!IsOurs(secret)) return absl::OkStatus();
  const Status gone =
      client_.Delete(path_ + "/" + TextAt(secret, "metadata.name"),
                     {{"preconditions", {{"uid", TextAt(secret, "metadata.uid")}}}});
  return absl::IsNotFound(gone) ? absl::OkStatus() : gone;
}

Status JobAuthorities::Forget(const std::string& job_uid) {
  {
    const std::lock_guard lock(mutex_);
    known_.erase(SecretName(job_uid));
  }
  const auto secret = client_.Get(path_ + "/" + SecretName(job_uid));
  if (absl::IsNotFound(secret.status())) return absl::OkStatus();
  if (!secret.ok()) return secret.status();
  // Its caller may not be able to read a job that is there.
  ASSIGN_OR_RETURN(const bool left, IsLeft(*secret));
  return left ? Delete(*secret) : absl::OkStatus();
}

// A job may be younger than what its caller knows, so the server decides. What a version made that
// did not say whose it is, is left for an hour: by then every job of that time is known.
StatusOr<bool> JobAuthorities::IsLeft(const json& secret) {
  const std::string space = LabelOf(secret, kJobSpaceLabel), job = LabelOf(secret, kJobNameLabel);
  if (!options_.watched.empty() && space != options_.watched) return false;  // another operator's
  if (space.empty()) {
    const auto made = InstantAt(secret, "metadata.creationTimestamp");
    return made && options_.clock() - *made > kUnsaid;
  }
  if (!IsObjectName(space) || !IsObjectName(job)) return false;
  const auto found =
      client_.Get("/apis/crowdsurf.io/v1alpha1/namespaces/" + space + "/trainingjobs/" + job);
  if (absl::IsNotFound(found.status())) return true;
  if (!found.ok()) return found.status();
  return SecretName(TextAt(*found, "metadata.uid")) != TextAt(secret, "metadata.name");
}

Status JobAuthorities::Sweep(const std::set<std::string>& alive) {
  ASSIGN_OR_RETURN(const KubeList secrets,
                   client_.List(path_ + "?labelSelector=" + kManagedBy + "%3D" + kManager));
  Status first;
  for (const json& secret : secrets.items) {
    const std::string name = TextAt(secret, "metadata.name");
    if (!name.starts_with(kOfJobs) || alive.contains(name.substr(kOfJobs.size()))) continue;
    const auto left = IsLeft(secret);
    first.Update(!left.ok() ? left.status() : *left ? Delete(secret) : absl::OkStatus());
  }
  return first;
}

}  // namespace crowdsurf::controller
