// Endpoint: an address to dial, "host:port", as peers, users and files name it.
//
// One parser for all that is dialed: names come from others, and a library that dials may read more
// into a text than a host and a port (gRPC: unix:, ipv4: with a list, dns://server/). Strict: an
// IPv4 address in four numbers, an IPv6 address in brackets without a zone, or a DNS name, then a
// port of 1 to 65535. Pure, any thread. Source: RFC 3986, section 3.2.2; RFC 1123, section 2.1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace crowdsurf {

struct Endpoint {
  enum class Kind : uint8_t { kIpv4, kIpv6, kName };
  std::string host;  // an IPv6 address without its brackets
  uint16_t port = 0;
  Kind kind = Kind::kName;
};

// nullopt: it is none.
std::optional<Endpoint> ParseEndpoint(std::string_view text);

}  // namespace crowdsurf
