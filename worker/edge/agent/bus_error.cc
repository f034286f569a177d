#include "worker/edge/agent/bus_error.h"

#include <signal.h>
#include <unistd.h>

namespace crowdsurf::worker {
namespace {

constexpr char kWords[] =
    "agent: SIGBUS: a mapped file was made shorter by another process (the trainer must not "
    "truncate $CROWDSURF_DIR/tensors); this agent ends, its supervisor starts another\n";

// Async-signal-safe calls only; the default action follows when we return to the same instruction.
void OnBusError(int) { [[maybe_unused]] const ssize_t n = ::write(2, kWords, sizeof kWords - 1); }

}  // namespace

void TellOfBusErrors() {
  struct sigaction action = {};
  action.sa_handler = OnBusError;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // its bit is the sign
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace crowdsurf::worker
