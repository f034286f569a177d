// Exit codes of every subcommand of `crowdsurf`.
//
// Scripts and CI tell by them a job that failed from a manifest or flag that is wrong. Listed with
// their causes in cli/README.md. Constants; any thread.
#pragma once

namespace crowdsurf::cli {

inline constexpr int kSucceeded = 0;
inline constexpr int kFailed = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kInterrupted = 130;

}  // namespace crowdsurf::cli
