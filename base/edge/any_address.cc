#include "base/edge/any_address.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace crowdsurf {

std::string AnyAddress(const std::string& wanted) {
  if (wanted != "::") return wanted;
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int both = 0;  // not IPv6 alone
  // A trial on port 0, so on any free one: it takes no server's place.
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_addr = in6addr_any;
  const bool bound = fd >= 0 &&
                     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both) == 0 &&
                     bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
  if (fd >= 0) close(fd);
  return bound ? wanted : "0.0.0.0";
}

}  // namespace crowdsurf
