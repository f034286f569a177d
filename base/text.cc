#include "base/text.h"

#include <algorithm>
#include <cstdint>

namespace crowdsurf {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr size_t kLongestCharacter = 4;

bool Continues(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// Bytes of the character that `text` begins with; 0 when it begins with none.
size_t CharacterAt(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return 1;
  // The table of well-formed sequences is RFC 3629, section 4.
  // 0xC0, 0xC1: overlong; above 0xF4: beyond U+10FFFF.
  const size_t length = first < 0xC2   ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!Continues(text[i])) return 0;
  }
  const auto second = static_cast<uint8_t>(text[1]);
  if (first == 0xE0 && second < 0xA0) return 0;   // overlong
  if (first == 0xED && second >= 0xA0) return 0;  // a surrogate
  if (first == 0xF0 && second < 0x90) return 0;   // overlong
  if (first == 0xF4 && second >= 0x90) return 0;  // beyond U+10FFFF
  return length;
}

}  // namespace

std::string CutText(std::string_view text, size_t most) {
  std::string out;
  while (!text.empty()) {
    const size_t length = CharacterAt(text);
    // One bad byte is replaced, and the next may begin a character: what follows is never lost with
    // it.
    const std::string_view character = length == 0 ? kReplacement : text.substr(0, length);
    if (out.size() + character.size() > most) break;
    out += character;
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string ValidText(std::string_view text) { return CutText(text, std::string::npos); }

std::string TextTail(std::string_view text, size_t most) {
  // What comes before cannot be in the result; a character that begins there is not in it whole.
  const size_t skipped = text.size() > most ? text.size() - most : 0;
  size_t begin = skipped;
  if (skipped > 0) {
    const size_t limit = std::min(text.size(), skipped + kLongestCharacter - 1);
    while (begin < limit && Continues(text[begin])) ++begin;
  }
  std::string out = ValidText(text.substr(begin));
  // Replacements are longer than what they stand for.
  begin = out.size() > most ? out.size() - most : 0;
  while (begin < out.size() && Continues(out[begin])) ++begin;
  return out.substr(begin);
}

}  // namespace crowdsurf
