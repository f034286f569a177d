// Atomic file: whoever reads it sees the old content or the new, never half of it.
//
// Written under a temporary name in the same folder, then renamed. Any thread; two writers of one
// path must not be at work at once. No fsync: these files die with the run.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace crowdsurf::controller {

// mode: of the file. Errors in words: ResourceExhausted when the disk is full, else Internal.
Status WriteFile(const std::string& path, std::string_view content, unsigned mode = 0644);

// The whole file, at most `limit` bytes of it; empty when it cannot be read.
std::string ReadFile(const std::string& path, size_t limit = 1 << 20);

// Makes the folder and its parents. Errors as WriteFile.
Status MakeFolders(const std::string& path, unsigned mode = 0755);

}  // namespace crowdsurf::controller
