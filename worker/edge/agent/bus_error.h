// Bus error: what a process says when a file that it has mapped was made shorter under it.
//
// The trainer may write the file `tensors`, so it can also truncate it, and nothing in Linux lets
// the agent forbid that for a file with a name in a tmpfs. Touching what is gone is SIGBUS. The
// agent then says so and ends by that signal; its supervisor counts the crash and starts a new one,
// which sets the broken file aside (crowdsurf_link_files_set_aside_total). To its peers it is one
// more member that died. Call once, before threads start.
#pragma once

namespace crowdsurf::worker {

void TellOfBusErrors();

}  // namespace crowdsurf::worker
