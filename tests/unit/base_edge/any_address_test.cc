// Which address a server binds to be reached over IPv4 and IPv6 alike.
#include "base/edge/any_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace crowdsurf {
namespace {

TEST(AnyAddressTest, WhatIsNotAnyAddressStaysAsItIs) {
  for (const char* own : {"127.0.0.1", "0.0.0.0", "::1", "host", ""}) {
    EXPECT_EQ(AnyAddress(own), own);
  }
}

// On a machine without IPv6 this shows that the fallback binds, on others that "::" hears IPv4.
TEST(AnyAddressTest, AServerThatBindsItIsReachedOverIPv4) {
  const std::string address = AnyAddress("::");
  sockaddr_storage storage{};
  socklen_t length = 0;
  if (address == "::") {
    auto* any = reinterpret_cast<sockaddr_in6*>(&storage);
    any->sin6_family = AF_INET6;
    length = sizeof *any;
  } else {
    ASSERT_EQ(address, "0.0.0.0");
    storage.ss_family = AF_INET;
    length = sizeof(sockaddr_in);
  }
  const int server = socket(storage.ss_family, SOCK_STREAM, 0);
  ASSERT_EQ(bind(server, reinterpret_cast<sockaddr*>(&storage), length), 0);
  ASSERT_EQ(listen(server, 1), 0);
  ASSERT_EQ(getsockname(server, reinterpret_cast<sockaddr*>(&storage), &length), 0);
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  loopback.sin_port = address == "::" ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                      : reinterpret_cast<sockaddr_in*>(&storage)->sin_port;
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(client, reinterpret_cast<sockaddr*>(&loopback), sizeof loopback), 0);
  close(client);
  close(server);
}

}  // namespace
}  // namespace crowdsurf
