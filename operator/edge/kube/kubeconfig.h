// Kubeconfig: where the API server is and who we are there.
//
// Reads what kubectl reads: $KUBECONFIG (several files, first wins), ~/.kube/config, inline data,
// files, client certificates, tokens, token files, exec plug-ins and impersonation; in a pod
// without either file, the mounted ServiceAccount, whose token is rotated on disk. A key of a
// cluster, a user or a plug-in that is not understood is refused: read past, it would mean another
// server or other rights than kubectl's. Secrets stay in memory and are never logged. Any
// thread after loading. Exceptions of yaml-cpp end here. Source: k8s.io/client-go tools/clientcmd
// (behaviour), client.authentication.k8s.io/v1 (exec).
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace crowdsurf::controller {

struct KubeCredentials {
  std::string token;         // bearer, or empty
  std::string certificate;   // PEM, or empty; the issuers' may follow
  std::string key;           // PEM, or empty
  int64_t expires_unix = 0;  // exec plug-ins; 0: never
};

struct KubeEndpoint {
  std::string host;
  int port = 443;
  std::string path;  // of the server's URL, in front of each request's; without a slash at its end
  // Of each request: whom we act for ("Impersonate-User").
  std::vector<std::pair<std::string, std::string>> headers;
  bool tls = true;
  std::string ca;                  // PEM; empty: the system's roots
  bool skip_verification = false;  // insecure-skip-tls-verify, as the user wrote
  std::string default_namespace = "default";
  // Asked before each use; cheap when nothing has changed. Re-reads a token file, re-runs an
  // expired plug-in.
  std::function<StatusOr<KubeCredentials>()> credentials;
};

// `paths`: files in order of precedence. InvalidArgument and NotFound name the file and the field.
StatusOr<KubeEndpoint> LoadKubeconfig(const std::vector<std::string>& paths,
                                      const std::string& context = "");
// The ServiceAccount that kubelet mounted. `folder` and the environment are given for tests.
StatusOr<KubeEndpoint> LoadInCluster(const std::string& folder, const std::string& host,
                                     const std::string& port);
// $KUBECONFIG, else ~/.kube/config where it is there, else the account of the pod.
StatusOr<KubeEndpoint> LoadDefaultKubeEndpoint();

}  // namespace crowdsurf::controller
