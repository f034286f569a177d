// TLS slab: the bytes between OpenSSL and a socket, gathered into few large writes and reads.
//
// OpenSSL gives one TLS record of 16 KiB at a time, and asks for a record's head and body apart.
// The slab is the BIO under a session: records wait in it until it is full or flushed, and one read
// fills it for several records. Each direction has kSlabBytes while it has bytes. OpenSSL's own
// read-ahead is no substitute: it moves all that is left to the front for every record. Owner:
// TlsStream; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/byte_pool.h"
#include "base/bytes.h"
#include "worker/edge/tensor/io_outcome.h"

struct bio_st;  // OpenSSL's BIO

namespace crowdsurf::worker {

class TlsSlab {
 public:
  // A full record of TLS 1.3 on the wire: head, type and tag around 16 KiB (RFC 8446, 5.2).
  static constexpr size_t kMaxRecordBytes = size_t{16} * 1024 + 256;
  // Four records: system calls cost little then, and both slabs of a thread stay in the L2 cache.
  static constexpr size_t kSlabBytes = 4 * kMaxRecordBytes;

  // `fd` is a connected, non-blocking socket that outlives the slab. Buffers come from `slabs`.
  TlsSlab(int fd, std::shared_ptr<BytePool> slabs) : fd_(fd), slabs_(std::move(slabs)) {}
  TlsSlab(const TlsSlab&) = delete;
  TlsSlab& operator=(const TlsSlab&) = delete;

  // A new BIO that writes and reads through this slab, which outlives it. The caller frees it, or
  // gives it to a session.
  bio_st* NewBio();

  // Sends what waits. kDone: nothing waits any more, `bytes` is 0. kWantWrite: the socket takes no
  // more for now. kClosed: it is broken.
  IoOutcome Flush();
  // The same where more is added at once: the kernel keeps what does not fill a packet until it
  // comes. Pre: a record follows, and then Flush.
  IoOutcome MakeRoom();
  // True when a whole record can be added without a write.
  bool HasRoom() const { return out_.end + kMaxRecordBytes <= kSlabBytes; }

  // For the BIO. Add writes first where there is no room; kDone: all of `bytes` is in the slab.
  IoOutcome Add(ByteView bytes);
  IoOutcome Take(std::span<uint8_t> into);  // kDone: at least a byte
  bool at_end() const { return at_end_; }   // the other side has closed

 private:
  struct Side {
    Bytes bytes;  // empty where nothing waits
    size_t begin = 0, end = 0;
  };
  IoOutcome SendAll(int flags);  // of send(2)
  void Release(Side& side);

  const int fd_;
  const std::shared_ptr<BytePool> slabs_;
  Side out_, in_;
  bool at_end_ = false;
};

}  // namespace crowdsurf::worker
