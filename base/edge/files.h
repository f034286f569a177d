// Files: whole small files, read, and replaced at once or not at all.
//
// A reader, or a crash, sees the old contents or the new, never a part: they are written under a
// temporary name in the same folder, then renamed. Blocking; any thread, but two writers of one
// path need names of their own (WriteOptions::writer). Errors name the path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace crowdsurf {

enum class Durable { kNo, kYes };  // kYes: on the disk when the call returns

struct WriteOptions {
  Durable durable = Durable::kNo;
  unsigned mode = 0644;  // as of chmod
  // Tells temporary files apart where several processes may write one path.
  std::string writer = {};
};

// Replaces `path` with the parts, one after the other. No symbolic link is followed to write: a
// folder may be somebody else's, too. NotFound: no such folder. ResourceExhausted: the disk is
// full. Else Internal. After an error nothing is left behind.
Status WriteFileAtomically(const std::string& path, const std::vector<ByteView>& parts,
                           const WriteOptions& options = {});
Status WriteFileAtomically(const std::string& path, std::string_view contents,
                           const WriteOptions& options = {});

// The whole file, at most `limit` bytes; follows symbolic links, as files of a cluster's volumes
// are some. NotFound, OutOfRange (it is longer), Internal.
StatusOr<std::string> ReadFile(const std::string& path, size_t limit = 16 << 20);

// A regular file, opened to be read; -1: there is none, or a symbolic link, a FIFO or the like has
// the name.
int OpenSharedFile(const std::string& path);

// Makes the folder and its parents; `mode` is the folder's own. Errors as WriteFileAtomically.
Status MakeFolders(const std::string& path, unsigned mode = 0755);

}  // namespace crowdsurf
