// Files: whole small files, read and written atomically.
//
// A reader of a file written here sees the old or the new contents, never a part: temporary name in
// the same directory, fsync, rename. Any thread; blocking, so not on the host thread for anything
// large.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"

namespace crowdsurf::dht {

// The contents; NotFound when there is no such file, ResourceExhausted beyond `limit` bytes.
StatusOr<std::string> ReadFile(const std::filesystem::path& path, size_t limit = 16 << 20);

// Replaces `path`; `mode` as of chmod.
Status WriteFileAtomically(const std::filesystem::path& path, const std::string& contents,
                           unsigned mode = 0644);

}  // namespace crowdsurf::dht
