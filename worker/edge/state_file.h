// State files: whole files written so that a reader, or a crash, sees the old one or the new one.
//
// Used by checkpoints, the model file, the link's opaque states and the agent's own directory.
// Temporary name beside the target, fsync when asked, rename, fsync of the folder. Blocking; any
// thread.
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
// The whole file, at most `most` bytes. NotFound, OutOfRange (longer), Internal.
StatusOr<Bytes> ReadFile(const std::string& path, uint64_t most);

struct HashedFile {
  Digest hash;  // Sha256 of its bytes
  uint64_t bytes = 0;
};
// Hashes without reading it into private memory.
StatusOr<HashedFile> HashFile(const std::string& path);

}  // namespace crowdsurf::worker
