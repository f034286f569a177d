// What may be dialed, and what only looks like it: written out by hand.
#include "base/endpoint.h"

#include <gtest/gtest.h>

#include <string>

namespace crowdsurf {
namespace {

std::string Parsed(std::string_view text) {
  const auto endpoint = ParseEndpoint(text);
  if (!endpoint) return "none";
  const char* kinds[] = {"v4", "v6", "name"};
  return std::string(kinds[static_cast<int>(endpoint->kind)]) + " " + endpoint->host + " " +
         std::to_string(endpoint->port);
}

TEST(EndpointTest, AddressesAndNamesWithAPort) {
  EXPECT_EQ(Parsed("127.0.0.1:7946"), "v4 127.0.0.1 7946");
  EXPECT_EQ(Parsed("[::1]:1"), "v6 ::1 1");
  EXPECT_EQ(Parsed("[::ffff:10.0.0.1]:65535"), "v6 ::ffff:10.0.0.1 65535");
  EXPECT_EQ(Parsed("llm-0.llm.default.svc:80"), "name llm-0.llm.default.svc 80");
  EXPECT_EQ(Parsed("host.:80"), "name host. 80");
  EXPECT_EQ(Parsed("3com.example:80"), "name 3com.example 80");
  EXPECT_EQ(Parsed("3f2a1b:80"), "name 3f2a1b 80");
  const std::string label(63, 'a');
  EXPECT_EQ(Parsed(label + ":80"), "name " + label + " 80");
}

TEST(EndpointTest, WhatALibraryWouldReadMoreInto) {
  for (const std::string_view text : {"unix:/run/secret.sock",
                                      "unix:/run/a.sock:80",
                                      "unix-abstract:a:80",
                                      "vsock:1:80",
                                      "ipv4:127.0.0.1:80",
                                      "ipv4:10.0.0.1:80,10.0.0.2:80",
                                      "ipv6:[::1]:80",
                                      "dns:///host:80",
                                      "dns://10.0.0.1:53/host:80",
                                      "xds:///host:80",
                                      "http://host:80",
                                      "10.0.0.1:80,10.0.0.2:80",
                                      "user@host:80",
                                      "host/path:80",
                                      "host%2f:80",
                                      "host :80",
                                      " host:80",
                                      "host:80 ",
                                      "host:80\n",
                                      "%5B::1%5D:80"}) {
    EXPECT_EQ(Parsed(text), "none") << text;
  }
  EXPECT_EQ(Parsed(std::string_view("host\0:80", 8)), "none");
  EXPECT_EQ(Parsed(std::string_view("[::1\0]:80", 9)), "none");
}

TEST(EndpointTest, HalfAnEndpointAndOddNumbers) {
  for (const std::string_view text : {"",
                                      ":",
                                      ":80",
                                      "host",
                                      "host:",
                                      "host:0",
                                      "host:65536",
                                      "host:99999999999",
                                      "host:-1",
                                      "host:+1",
                                      "host:080",
                                      "host:8o",
                                      "host:0x50",
                                      "::1:80",
                                      "[::1]",
                                      "[::1:80",
                                      "::1]:80",
                                      "[]:80",
                                      "[fe80::1%eth0]:80",
                                      "[127.0.0.1]:80",
                                      "[host]:80",
                                      "127.1:80",
                                      "0x7f.1:80",
                                      "0x7f000001:80",
                                      "2130706433:80",
                                      "1.2.3.4.5:80",
                                      "256.0.0.1:80",
                                      "-host:80",
                                      "host-:80",
                                      "a..b:80",
                                      ".:80",
                                      ".host:80",
                                      "h\xc3\xb6st:80"}) {
    EXPECT_EQ(Parsed(text), "none") << text;
  }
  EXPECT_EQ(Parsed(std::string(64, 'a').append(":80")), "none");
  std::string long_name;
  while (long_name.size() < 254) long_name += "abcdefghi.";
  EXPECT_EQ(Parsed(long_name + "com:80"), "none");
}

}  // namespace
}  // namespace crowdsurf
