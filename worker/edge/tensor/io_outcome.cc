#include "worker/edge/tensor/io_outcome.h"

#include <cerrno>

namespace crowdsurf::worker {

IoOutcome OutcomeOfErrno(IoDirection direction) {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    return {direction == IoDirection::kRead ? IoState::kWantRead : IoState::kWantWrite, 0};
  }
  return {IoState::kClosed, 0};
}

}  // namespace crowdsurf::worker
