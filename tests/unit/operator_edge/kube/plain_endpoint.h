// PlainEndpoint: how a KubeClient reaches an API server of a test.
//
// Without TLS and without credentials, on loopback (tests/support/loopback_server.h). Any thread.
// Of a real server and its kubeconfig: tests/cluster.
#pragma once

#include "operator/edge/kube/kubeconfig.h"

namespace crowdsurf::controller {

inline KubeEndpoint PlainEndpoint(int port) {
  KubeEndpoint endpoint;
  endpoint.host = "127.0.0.1";
  endpoint.port = port;
  endpoint.tls = false;
  endpoint.credentials = [] { return KubeCredentials{}; };
  return endpoint;
}

}  // namespace crowdsurf::controller
