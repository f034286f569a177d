#include "worker/edge/tensor/tls_slab.h"

#include <openssl/bio.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

TlsSlab& SlabOf(BIO* bio) { return *static_cast<TlsSlab*>(BIO_get_data(bio)); }

// OpenSSL's words for an outcome: 1, or 0 with or without the wish to be called again.
int Answer(BIO* bio, const IoOutcome& outcome, size_t* moved) {
  BIO_clear_retry_flags(bio);
  *moved = outcome.bytes;
  if (outcome.state == IoState::kDone) return 1;
  if (outcome.state == IoState::kWantRead) BIO_set_retry_read(bio);
  if (outcome.state == IoState::kWantWrite) BIO_set_retry_write(bio);
  return 0;
}

int WriteBio(BIO* bio, const char* data, size_t size, size_t* written) {
  return Answer(bio, SlabOf(bio).Add({reinterpret_cast<const uint8_t*>(data), size}), written);
}

int ReadBio(BIO* bio, char* data, size_t size, size_t* got) {
  return Answer(bio, SlabOf(bio).Take({reinterpret_cast<uint8_t*>(data), size}), got);
}

long ControlBio(BIO* bio, int command, long /*number*/, void* /*pointer*/) {
  size_t none = 0;
  switch (command) {
    case BIO_CTRL_FLUSH:  // at the end of each flight of the handshake
      return Answer(bio, SlabOf(bio).Flush(), &none);
    case BIO_CTRL_EOF:
      return SlabOf(bio).at_end() ? 1 : 0;
    default:
      return 0;
  }
}

// Made once, for all threads.
const BIO_METHOD* Method() {
  static const BIO_METHOD* const kMethod = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "slab");
    CHECK(made != nullptr);
    CHECK_EQ(BIO_meth_set_write_ex(made, WriteBio), 1);
    CHECK_EQ(BIO_meth_set_read_ex(made, ReadBio), 1);
    CHECK_EQ(BIO_meth_set_ctrl(made, ControlBio), 1);
    return made;
  }();
  return kMethod;
}

}  // namespace

BIO* TlsSlab::NewBio() {
  BIO* bio = BIO_new(Method());
  CHECK(bio != nullptr);
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  return bio;
}

// An idle connection keeps no buffer.
void TlsSlab::Release(Side& side) { slabs_->Give(std::exchange(side.bytes, {})); }

IoOutcome TlsSlab::Flush() {
  const IoOutcome outcome = SendAll(0);
  if (outcome.state == IoState::kDone) Release(out_);
  return outcome;
}

// Four records are a little more than one of the kernel's large packets: without the flag each slab
// would end with a small one of its own.
IoOutcome TlsSlab::MakeRoom() { return SendAll(MSG_MORE); }

IoOutcome TlsSlab::SendAll(int flags) {
  while (out_.begin < out_.end) {
    const ssize_t sent =
        ::send(fd_, out_.bytes.data() + out_.begin, out_.end - out_.begin, MSG_NOSIGNAL | flags);
    if (sent <= 0) return OutcomeOfErrno(IoDirection::kWrite);
    out_.begin += static_cast<size_t>(sent);
  }
  out_.begin = out_.end = 0;
  return {IoState::kDone, 0};
}

IoOutcome TlsSlab::Add(ByteView bytes) {
  CHECK_LE(bytes.size(), kSlabBytes);
  if (out_.bytes.empty()) out_.bytes = slabs_->Take(kSlabBytes);
  if (out_.end + bytes.size() > kSlabBytes) {
    const IoOutcome outcome = MakeRoom();
    if (outcome.state != IoState::kDone) return outcome;
  }
  std::memcpy(out_.bytes.data() + out_.end, bytes.data(), bytes.size());
  out_.end += bytes.size();
  return {IoState::kDone, bytes.size()};
}

IoOutcome TlsSlab::Take(std::span<uint8_t> into) {
  if (in_.begin == in_.end) {
    if (in_.bytes.empty()) in_.bytes = slabs_->Take(kSlabBytes);
    const ssize_t got = ::recv(fd_, in_.bytes.data(), kSlabBytes, 0);
    at_end_ = got == 0;
    if (got <= 0) {
      const IoOutcome outcome =
          at_end_ ? IoOutcome{IoState::kClosed, 0} : OutcomeOfErrno(IoDirection::kRead);
      Release(in_);
      return outcome;
    }
    in_.begin = 0;
    in_.end = static_cast<size_t>(got);
  }
  const size_t taken = std::min(into.size(), in_.end - in_.begin);
  std::memcpy(into.data(), in_.bytes.data() + in_.begin, taken);
  in_.begin += taken;
  return {IoState::kDone, taken};
}

}  // namespace crowdsurf::worker
