// Link folder: $CROWDSURF_DIR as the agent opens it, where the trainer may put anything.
//
// The trainer writes to the same folder, so nothing in it is believed. The folder is opened once,
// and names are looked up in that very folder: what is put in its place later is not seen. A
// symbolic link is never followed, neither to read nor to create; a FIFO, a device, a file of
// another user or one with a second name is refused. What only the agent needs has no name at all
// (held_state.h). Linux. Any thread; a folder stays as it is.
#pragma once

#include <string>

#include "base/status.h"
#include "worker/edge/link/owned_fd.h"

namespace crowdsurf::worker {

class LinkFolder {
 public:
  // NotFound; FailedPrecondition: a symbolic link or no folder.
  static StatusOr<LinkFolder> Open(const std::string& path);

  // The agent's own file `name` for reading and writing. NotFound; FailedPrecondition: something
  // else has the name, which the message says.
  StatusOr<OwnedFd> OpenOwn(const char* name) const;
  // A new file, for reading and writing; what had the name is removed. ResourceExhausted: no space.
  StatusOr<OwnedFd> Create(const char* name) const;
  // A new file without a name. ResourceExhausted: no space.
  StatusOr<OwnedFd> CreateNameless() const;
  // Replaces `to`.
  Status Rename(const char* from, const char* to) const;
  void Remove(const char* name) const;
  bool IsSocket(const char* name) const;
  // Lets every user connect. Pre: the own socket was just bound there. FailedPrecondition: it is no
  // socket any more.
  Status OpenSocketToAll(const char* name) const;

  // A path into this very folder, whatever its name leads to now.
  std::string Through(const char* name) const;
  std::string PathOf(const char* name) const { return path_ + "/" + name; }  // for messages
  int fd() const { return fd_.get(); }

 private:
  LinkFolder(std::string path, OwnedFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Status Failed(const char* what, const char* name, int error) const;

  std::string path_;
  OwnedFd fd_;
};

}  // namespace crowdsurf::worker
