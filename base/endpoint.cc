#include "base/endpoint.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

namespace crowdsurf {
namespace {

constexpr size_t kMaxName = 253, kMaxLabel = 63;  // bytes; RFC 1035, section 2.3.4

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlphanumeric(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::optional<uint16_t> ParsePort(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool plain = error == std::errc() && end == text.data() + text.size() && text[0] != '0';
  return plain ? std::optional(port) : std::nullopt;
}

// An underscore is in no host's name, but in those of some services.
bool IsLabel(std::string_view label) {
  return !label.empty() && label.size() <= kMaxLabel && label.front() != '-' &&
         label.back() != '-' && std::all_of(label.begin(), label.end(), [](char c) {
           return IsAlphanumeric(c) || c == '-' || c == '_';
         });
}

// Resolvers read 127.1 and 0x7f000001 as an address: no name ends like that.
bool IsNumber(std::string_view label) {
  return label.starts_with("0x") || label.starts_with("0X") ||
         std::all_of(label.begin(), label.end(), IsDigit);
}

bool IsName(std::string_view name) {
  if (name.ends_with('.')) name.remove_suffix(1);  // the root
  if (name.empty() || name.size() > kMaxName) return false;
  for (;;) {
    const size_t dot = name.find('.');
    const std::string_view label = name.substr(0, dot);
    if (!IsLabel(label)) return false;
    if (dot == std::string_view::npos) return !IsNumber(label);
    name.remove_prefix(dot + 1);
  }
}

}  // namespace

std::optional<Endpoint> ParseEndpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || text.size() > kMaxName + sizeof ":65535") {
    return std::nullopt;
  }
  std::string_view host = text.substr(0, colon);
  const auto port = colon + 1 < text.size() ? ParsePort(text.substr(colon + 1)) : std::nullopt;
  if (!port || host.empty()) return std::nullopt;
  unsigned char bytes[sizeof(in6_addr)];
  Endpoint out{.host = std::string(host), .port = *port};
  if (host.front() == '[') {
    if (host.back() != ']') return std::nullopt;
    out.host = host.substr(1, host.size() - 2);
    out.kind = Endpoint::Kind::kIpv6;
    if (inet_pton(AF_INET6, out.host.c_str(), bytes) != 1) return std::nullopt;
  } else if (inet_pton(AF_INET, out.host.c_str(), bytes) == 1) {
    out.kind = Endpoint::Kind::kIpv4;
  } else if (!IsName(host)) {
    return std::nullopt;
  }
  // A zero byte ends a text for some of those that read it later.
  if (out.host.find('\0') != std::string::npos) return std::nullopt;
  return out;
}

}  // namespace crowdsurf
