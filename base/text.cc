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

// Bytes of the control character other than tab that `text`, which is valid, begins with; else 0.
size_t ControlAt(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) == 0xC2 && byte(1) < 0xA0) return 2;  // U+0080 to U+009F
  return (byte(0) < 0x20 && text[0] != '\t') || byte(0) == 0x7F ? 1 : 0;
}

// Bytes of the escape sequence that `text` begins with; 1 when nothing known follows the escape.
size_t EscapeAt(std::string_view text) {
  if (text.size() < 2) return 1;
  if (text[1] == '[') {  // CSI: parameters, then one final byte
    size_t end = 2;
    while (end < text.size() && text[end] >= 0x20 && text[end] <= 0x3F) ++end;
    return std::min(end + 1, text.size());
  }
  if (text[1] != ']') return 1;
  // OSC: a title or a link, ended by BEL or by ESC and a backslash.
  const size_t end = text.find_first_of("\x07\x1b", 2);
  if (end == std::string_view::npos) return text.size();
  return std::min(end + (text[end] == '\x07' ? 1 : 2), text.size());
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

std::string ShownLine(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  // A progress bar goes back to the margin and writes over itself.
  line.remove_prefix(line.rfind('\r') + 1);
  const std::string valid = ValidText(line);
  std::string out;
  for (std::string_view left = valid; !left.empty();) {
    const size_t skipped = left[0] == '\x1b' ? EscapeAt(left) : ControlAt(left);
    if (skipped == 0) out += left[0];
    left.remove_prefix(std::max<size_t>(skipped, 1));
  }
  return out;
}

std::string ShownText(std::string_view text, size_t most) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return CutText(ShownLine(line), most);
}

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

std::vector<std::string_view> SplitText(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

}  // namespace crowdsurf
