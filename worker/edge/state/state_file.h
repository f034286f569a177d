// State files: whole files written so that a reader, or a crash, sees the old one or the new one.
//
// Used by checkpoints, the model file and the agent's own directory.
// Temporary name beside the target, fsync when asked, rename, fsync of the folder. The trainer may
// have the folder, too: no symbolic link is followed to write. Blocking; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/status.h"

namespace crowdsurf::worker {

enum class Durable { kNo, kYes };  // kYes: on the disk when the call returns

// Writes the parts one after the other. `writer` tells temporary files apart where several
// processes may write one path. ResourceExhausted: the disk is full (nothing is left behind).
Status WriteFileAtomically(const std::string& path, const std::vector<ByteView>& parts,
                           Durable durable, uint32_t mode = 0644, const std::string& writer = "");
// The whole file, at most `most` bytes; follows symbolic links, as the cluster's files are some.
// NotFound, OutOfRange (longer), Internal.
StatusOr<Bytes> ReadFile(const std::string& path, uint64_t most);
// A regular file, opened to be read; -1: there is none, or a symbolic link, a FIFO or the like has
// the name.
int OpenSharedFile(const std::string& path);

}  // namespace crowdsurf::worker
