// FailureText: what a worker that failed printed last, fit for a status, an event and a terminal.
//
// A trainer prints any bytes: progress bars, colours, keys of the services that it talks to.
// A user who can read a TrainingJob can read this, so control sequences are removed and what looks
// like a secret is masked. That is a net, not a promise: a secret without a name or a known form
// passes. Pure, any thread; linear in the output. Formats: docs.python.org, library traceback and
// faulthandler.
#pragma once

#include <string>
#include <string_view>

namespace crowdsurf::controller {

inline constexpr size_t kMaxFailureLine = 256;  // bytes; an event's message holds 1,024

// The end of `output`, its lines as a terminal shows them, secrets masked; at most `most` bytes.
std::string ShownOutput(std::string_view output, size_t most);

// The one line that says why: of the last Python traceback the exception's, else the last line that
// names an error, else the last that sounds of trouble, else the last that is no progress bar.
// `reason` is that of reasons.h: of a trainer that hung an earlier traceback says nothing. Empty:
// there is none. At most kMaxFailureLine bytes. Pre: ShownOutput made `shown`.
std::string FailureLine(std::string_view reason, std::string_view shown);

// Of what Python's faulthandler wrote of all threads: the frame in which the main one is, such as
// `File "/app/train.py", line 8 in main`. Empty: it is no such text. Pre: as FailureLine.
std::string MainThreadFrame(std::string_view shown);

}  // namespace crowdsurf::controller
