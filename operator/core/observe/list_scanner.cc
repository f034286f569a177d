#include "operator/core/observe/list_scanner.h"

#include <algorithm>

namespace crowdsurf::controller {
namespace {

constexpr size_t kMaxMember = 64;  // of what is compared with "items"

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

// Text goes where it belongs: to the item under way or to what is around the items.
void ListScanner::Keep(std::string_view piece) {
  std::string& target = in_items() ? item_ : rest_;
  ok_ = ok_ && target.size() + piece.size() <= (in_items() ? max_item_ : kMaxRest);
  if (ok_) target.append(piece);
}

// A comma between items, or the end of them. False: `c` is part of an item.
bool ListScanner::Separator(char c) {
  if (!in_items() || depth_ != items_at_ || (c != ',' && c != ']')) return false;
  // An empty list has no item, but perhaps blanks between its brackets.
  if (!IsBlank(item_)) ok_ = ok_ && on_item_(item_);
  item_.clear();
  return true;
}

// Pre: outside of strings.
void ListScanner::Structure(char c) {
  // Members of the list lie at depth 1, its items at depth 2.
  const bool items_end = Separator(c) && c == ']';
  if (items_end) items_at_ = 0;
  if (!in_items() || depth_ != items_at_ || c != ',') Keep(std::string_view(&c, 1));
  if (c == '{' || c == '[') {
    // Only at the top: items may hold lists called "items" themselves.
    if (c == '[' && depth_ == 1 && !in_items() && name_ == "items") items_at_ = 2;
    ++depth_;
  } else if (c == '}' || c == ']') {
    --depth_;
    ok_ = ok_ && depth_ >= 0;
  }
}

bool ListScanner::Feed(std::string_view bytes) {
  while (ok_ && !bytes.empty()) {
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
        Keep(bytes.substr(0, 1));
        bytes.remove_prefix(1);
        continue;
      }
      const size_t end = bytes.find_first_of("\"\\");
      const size_t taken = end == std::string_view::npos ? bytes.size() : end + 1;
      if (end != std::string_view::npos) {
        escaped_ = bytes[end] == '\\';
        in_string_ = escaped_;
      }
      if (depth_ == 1) {  // with its backslashes, so that an escaped name is another one
        const std::string_view name = bytes.substr(0, in_string_ ? taken : end);
        name_ += name.substr(0, kMaxMember - name_.size());
      }
      Keep(bytes.substr(0, taken));
      bytes.remove_prefix(taken);
      continue;
    }
    // Numbers, literals and blanks pass as they are.
    const size_t plain = std::min(bytes.find_first_of("\"{}[],"), bytes.size());
    if (plain > 0) Keep(bytes.substr(0, plain));
    bytes.remove_prefix(plain);
    if (bytes.empty()) break;
    if (bytes.front() == '"') {
      in_string_ = true;
      if (depth_ == 1) name_.clear();
      Keep(bytes.substr(0, 1));
    } else {
      Structure(bytes.front());
    }
    bytes.remove_prefix(1);
  }
  return ok_;
}

}  // namespace crowdsurf::controller
