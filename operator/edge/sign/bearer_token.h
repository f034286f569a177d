// Bearer tokens: taken from a request's Authorization header, and how long the API server's word
// on one is remembered.
//
// The same at every port of the operator that asks for a token: the signer, the handler of death
// reports, the guard of metrics. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"

namespace crowdsurf::controller {

// As long as kube-apiserver remembers its own webhooks' answers: shorter costs it two reviews a
// request, longer lets a reader in whose right was taken away.
inline constexpr Duration kTokenBelievedFor = Seconds(60);
inline constexpr Duration kTokenRefusedFor = Seconds(10);

// What follows "Bearer ", which may be empty; nullopt for any other scheme.
inline std::optional<std::string> BearerToken(const std::string& authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization.compare(0, kScheme.size(), kScheme) != 0) return std::nullopt;
  return authorization.substr(kScheme.size());
}

}  // namespace crowdsurf::controller
