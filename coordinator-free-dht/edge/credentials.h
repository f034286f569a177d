// Credentials: gRPC's mutual TLS 1.3 from an agent's key.pem, cert.pem and ca.pem.
//
// The files are watched, so a renewed certificate serves new connections without a restart. Each
// side judges the other by edge/certificate.h after the handshake, before any call is seen, and
// counts refusals. TLS 1.2 cannot be negotiated: gRPC 1.51 has no switch for it, but the only 1.2
// cipher left enabled needs an RSA certificate, and ours are Ed25519.
#pragma once

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "base/metrics.h"
#include "base/status.h"
#include "coordinator-free-dht/edge/identity.h"

namespace crowdsurf::dht {

struct PeerCredentials {
  std::shared_ptr<grpc::ServerCredentials> server;
  std::shared_ptr<grpc::ChannelCredentials> channel;
  std::shared_ptr<void> counting;  // refusals are counted as long as this lives
};

// `refused` outlives what is returned, if not what gRPC keeps of it. Error when a file is missing
// or cert.pem does not fit.
StatusOr<PeerCredentials> MakePeerCredentials(const Identity& identity, const std::string& job,
                                              Counter& refused);
PeerCredentials MakeInsecureCredentials();

// The key of the certificate that the other end of a call has shown. Error: there is none.
StatusOr<PublicKey> KeyShownBy(const grpc::AuthContext& call);

}  // namespace crowdsurf::dht
