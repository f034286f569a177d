#include "base/bytes.h"

namespace crowdsurf {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string ToHex(ByteView bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const uint8_t b : bytes) {
    out.push_back(kDigits[b >> 4]);
    out.push_back(kDigits[b & 15]);
  }
  return out;
}

bool FromHex(std::string_view hex, std::span<uint8_t> out) {
  if (hex.size() != 2 * out.size()) return false;
  for (size_t i = 0; i < out.size(); ++i) {
    const int high = HexDigit(hex[2 * i]);
    const int low = HexDigit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

ByteView ByteReader::Raw(size_t n) {
  if (!ok_ || n > in_.size()) {
    ok_ = false;
    return {};
  }
  const ByteView result = in_.first(n);
  in_ = in_.subspan(n);
  return result;
}

ByteView ByteReader::Blob(size_t limit) {
  const uint32_t n = U32();
  // Raw looks at ok_ first: a blob over its limit takes nothing.
  if (n > limit) ok_ = false;
  return Raw(n);
}

uint32_t ByteReader::Count(size_t limit, size_t min_bytes) {
  const uint32_t n = U32();
  if (!ok_ || n > limit || n > in_.size() / (min_bytes == 0 ? 1 : min_bytes)) {
    ok_ = false;
    return 0;
  }
  return n;
}

uint64_t ByteReader::Little(int width) {
  const ByteView bytes = Raw(static_cast<size_t>(width));
  uint64_t v = 0;
  for (size_t i = 0; i < bytes.size(); ++i) v |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  return v;
}

}  // namespace crowdsurf
