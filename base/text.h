// Text: text that others wrote, cut and made valid without ever splitting a character.
//
// A message of the API server, a value of a manifest, the last line of a trainer may be of any
// bytes and any length; JSON, Kubernetes and terminals want UTF-8. These are the only functions
// that shorten such text. Bytes that are no UTF-8 (overlong, surrogates and beyond U+10FFFF among
// them) become U+FFFD, one each. Pure, any thread; linear in what is kept. Source: RFC 3629; of
// terminals ECMA-48.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace crowdsurf {

// The beginning of `text`, valid, at most `most` bytes.
std::string CutText(std::string_view text, size_t most);
// Its end, valid, at most `most` bytes.
std::string TextTail(std::string_view text, size_t most);
// All of it, valid; up to three times as long.
std::string ValidText(std::string_view text);
// A line that a program printed, as a terminal would leave it: what follows its last carriage
// return, without escape sequences and control characters other than tab; valid.
std::string ShownLine(std::string_view line);
// A text that others wrote, as a part of one line: as ShownLine, and each line break and carriage
// return is a space; at most `most` bytes.
std::string ShownText(std::string_view text, size_t most = std::string::npos);
// Its pieces between separators, views into `text`. One at its end begins no further piece, and
// nothing has none.
std::vector<std::string_view> SplitText(std::string_view text, char separator);

}  // namespace crowdsurf
