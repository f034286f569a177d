// Bytes: bounded reading and writing of binary messages, and hex.
//
// Little-endian, fixed width; strings and blobs carry a u32 length. A Reader never throws and never
// reads past its end: after the first violation every read returns zero values and ok() is false,
// so a decoder checks once, at the end, and the caller counts and drops. Limits on counts are the
// caller's: use Reader::Count. Single sequence.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace crowdsurf {

using Bytes = std::vector<uint8_t>;
using ByteView = std::span<const uint8_t>;

inline ByteView AsBytes(std::string_view s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}
inline std::string_view AsString(ByteView b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

std::string ToHex(ByteView bytes);
// False (and `out` unspecified) when `hex` is not exactly 2 * out.size() lower- or upper-case hex
// digits.
bool FromHex(std::string_view hex, std::span<uint8_t> out);

class ByteWriter {
 public:
  void U8(uint8_t v) { out_.push_back(v); }
  void U16(uint16_t v) { Little(v, 2); }
  void U32(uint32_t v) { Little(v, 4); }
  void U64(uint64_t v) { Little(v, 8); }
  void I64(int64_t v) { U64(static_cast<uint64_t>(v)); }
  void F64(double v) {
    uint64_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    U64(bits);
  }
  void Bool(bool v) { U8(v ? 1 : 0); }
  void Raw(ByteView bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  void Blob(ByteView bytes) {
    U32(static_cast<uint32_t>(bytes.size()));
    Raw(bytes);
  }
  void String(std::string_view s) { Blob(AsBytes(s)); }

  const Bytes& bytes() const { return out_; }
  Bytes Take() { return std::move(out_); }

 private:
  void Little(uint64_t v, int width) {
    for (int i = 0; i < width; ++i) out_.push_back(static_cast<uint8_t>(v >> (8 * i)));
  }
  Bytes out_;
};

class ByteReader {
 public:
  explicit ByteReader(ByteView in) : in_(in) {}

  uint8_t U8() { return static_cast<uint8_t>(Little(1)); }
  uint16_t U16() { return static_cast<uint16_t>(Little(2)); }
  uint32_t U32() { return static_cast<uint32_t>(Little(4)); }
  uint64_t U64() { return Little(8); }
  int64_t I64() { return static_cast<int64_t>(U64()); }
  double F64() {
    const uint64_t bits = U64();
    double v;
    std::memcpy(&v, &bits, sizeof v);
    return v;
  }
  bool Bool() {  // anything but 0 and 1 is a violation
    const uint8_t v = U8();
    if (v > 1) ok_ = false;
    return v == 1;
  }
  // The next `n` bytes, borrowed from the input; empty when there are fewer.
  ByteView Raw(size_t n);
  // A blob of at most `limit` bytes, borrowed.
  ByteView Blob(size_t limit);
  std::string String(size_t limit) { return std::string(AsString(Blob(limit))); }
  // A u32 element count of at most `limit`, each element being at least `min_bytes` long (bounds
  // allocation).
  uint32_t Count(size_t limit, size_t min_bytes);

  void Fail() { ok_ = false; }
  bool ok() const { return ok_; }
  // True when everything was read and nothing was wrong: the usual last line of a decoder.
  bool Done() const { return ok_ && in_.empty(); }
  size_t remaining() const { return in_.size(); }

 private:
  uint64_t Little(int width);
  ByteView in_;
  bool ok_ = true;
};

}  // namespace crowdsurf
