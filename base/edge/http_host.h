// Whether a request was meant for this machine by its address: a defense against DNS rebinding.
//
// A page of a stranger may have its own name resolve to 127.0.0.1 and then read what a local server
// says. The browser still sends that name as Host. Pure, any thread. Source: RFC 9110, 7.2.
#pragma once

#include <arpa/inet.h>

#include <string>
#include <string_view>

namespace crowdsurf {

// `host`: the Host field. True for an IPv4 or IPv6 address or localhost, each with or without a
// port, and where there is none, as of HTTP/1.0: browsers always send one.
inline bool NamesAnAddress(std::string_view host) {
  if (host.empty()) return true;
  unsigned char address[sizeof(in6_addr)];
  if (host[0] == '[') {
    const size_t end = host.find(']');
    const std::string inside(host.substr(1, end == std::string_view::npos ? end : end - 1));
    const bool ends = end + 1 == host.size() || (end + 1 < host.size() && host[end + 1] == ':');
    return end != std::string_view::npos && ends &&
           inet_pton(AF_INET6, inside.c_str(), address) == 1;
  }
  const std::string name(host.substr(0, host.rfind(':')));
  return name == "localhost" || inet_pton(AF_INET, name.c_str(), address) == 1;
}

}  // namespace crowdsurf
