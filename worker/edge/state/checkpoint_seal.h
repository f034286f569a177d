// CheckpointSeals: who wrote a checkpoint.
//
// A checkpoint's hashes find what is broken, not what is planted: a trainer has the volume, too,
// and can make a file whose hashes agree. So the agent that writes one signs the hash of its head
// with the key of its certificate. Signature and certificate lie beside it, in `NAME.seal`. A seal
// is good where the certificate is of the job and of its present CA. It may have ended since. A job
// that was made anew has another CA: the seals of its earlier life prove nothing to it. Source:
// docs/decisions/worker/edge/046-sealed-checkpoints.md. Blocking; any thread.
#pragma once

#include <string>

#include "base/id.h"
#include "base/status.h"
#include "coordinator-free-dht/edge/identity.h"

namespace crowdsurf::worker {

class CheckpointSeals {
 public:
  // `identity` outlives it. Its folder has cert.pem and ca.pem when the methods are called.
  CheckpointSeals(const dht::Identity& identity, std::string job);

  // Seals the checkpoint at `path`, whose head has that hash. `writer`: as of the checkpoint.
  // Errors: the certificate cannot be read; those of WriteFileAtomically.
  Status Write(const std::string& path, const Digest& head, const std::string& writer) const;
  // An agent of this job has sealed that head, and the seal lies beside `path`. 0.3 ms.
  bool IsSealed(const std::string& path, const Digest& head) const;

  static std::string NameOf(const std::string& path) { return path + ".seal"; }

 private:
  Bytes SignedBytes(const Digest& head) const;

  const dht::Identity& identity_;
  const std::string job_;
};

}  // namespace crowdsurf::worker
