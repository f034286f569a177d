// Certificate: how a peer's certificate is judged, in one place for gRPC and tensor connections.
//
// A peer is of our job when its certificate chains to the job's CA (ca.pem) and is valid now. It
// carries an Ed25519 key and the name peer.crowdsurf: addresses change, so none is certified. Where
// the job is given, it carries the URI crowdsurf://JOB/..., because a user's CA may serve several
// jobs. Pure but for the clock. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "base/time.h"
#include "coordinator-free-dht/core/wire/record.h"

namespace crowdsurf::dht {

inline constexpr char kPeerName[] = "peer.crowdsurf";

// The chain that a peer showed, its leaf first and once: OpenSSL gives a client the leaf in `rest`,
// and a server without it. Each certificate costs 0.2 ms to read.
std::string ChainWithLeaf(std::string_view leaf, std::string_view rest);

// The error says which check failed. `chain_pem`: leaf first. `job` empty: not checked. 0.2 ms.
Status VerifyPeerCertificate(const std::string& chain_pem, const std::string& ca_pem,
                             const std::string& job);

// The same, valid now or at another time: of who wrote something in the past.
Status VerifyPastCertificate(const std::string& chain_pem, const std::string& ca_pem,
                             const std::string& job);

// The raw Ed25519 key of the first certificate in `pem`; an error for any other kind of key.
StatusOr<PublicKey> PublicKeyOfCertificate(const std::string& pem);

// From when to when the first certificate in `pem` is valid.
struct Validity {
  WallTime from;
  WallTime until;
};
StatusOr<Validity> ValidityOfCertificate(const std::string& pem);

}  // namespace crowdsurf::dht
