// What a program inherits of the one that starts it, and may not take as it is.
//
// Called first in every main, before threads and descriptors of its own. Source: POSIX, exec.
#pragma once

namespace crowdsurf {

// Opens /dev/null on those of the descriptors 0 to 2 that are closed: the next file or socket would
// get the number, and what is printed would go there. Gives SIGCHLD its default, since under an
// ignored one no child can be waited for.
void TakeInherited();

// Whether the signal is ignored now. Ask before a handler is set or the signal is blocked: nohup
// ignores SIGHUP and a shell without job control SIGINT of its background jobs, and both mean it.
bool IsIgnored(int signal);

}  // namespace crowdsurf
