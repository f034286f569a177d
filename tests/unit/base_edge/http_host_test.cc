// Hosts that a browser sends for a page of a stranger, and those of whoever is meant.
#include "base/edge/http_host.h"

#include <gtest/gtest.h>

namespace crowdsurf {
namespace {

TEST(HttpHostTest, AddressesAndLocalhostAreMeant) {
  for (const char* host : {"", "127.0.0.1", "127.0.0.1:7948", "10.1.2.3:7948", "localhost",
                           "localhost:80", "[::1]", "[::1]:7948", "[2001:db8::1]:7948"}) {
    EXPECT_TRUE(NamesAnAddress(host)) << host;
  }
}

TEST(HttpHostTest, ANameIsNot) {
  for (const char* host : {"evil.example", "evil.example:7948", "127.0.0.1.evil.example",
                           "localhost.evil.example", "[::1", "[evil]", "[]", ":80", "[::1].evil"}) {
    EXPECT_FALSE(NamesAnAddress(host)) << host;
  }
}

}  // namespace
}  // namespace crowdsurf
