#include "worker/edge/tensor/round_trip.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

namespace crowdsurf::worker {

std::optional<Duration> LeastRoundTripOf(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  // A kernel older than the field gives less.
  if (size < offsetof(tcp_info, tcpi_min_rtt) + sizeof(info.tcpi_min_rtt)) return std::nullopt;
  if (info.tcpi_min_rtt == ~uint32_t{0}) return std::nullopt;  // nothing was acknowledged yet
  return Microseconds(info.tcpi_min_rtt);
}

}  // namespace crowdsurf::worker
