// ListScanner: the items of a Kubernetes list, cut out of its bytes as they arrive.
//
// A page of 500 pods is ten megabytes of text and, as a tree of JSON values, fifty: so nobody holds
// more than one item. Feed takes the bytes of one JSON object, cut anywhere, and hands over each
// element of its top-level "items" as text; what is around them, with an empty "items", is left in
// rest(). It finds where values end and judges nothing else: whoever parses an item, and the rest,
// sees whether it was JSON. Bounds: kMaxItem and kMaxRest; input above them ends the scan. Owner:
// the thread that lists. Single sequence. Source: Kubernetes API conventions, "Lists".
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "operator/core/observe/watch_parser.h"

namespace crowdsurf::controller {

class ListScanner {
 public:
  static constexpr size_t kMaxItem = WatchParser::kMaxLine;
  static constexpr size_t kMaxRest = 1 << 20;  // apiVersion, kind, metadata
  // False ends the scan.
  using OnItem = std::function<bool(std::string_view item)>;

  explicit ListScanner(OnItem on_item, size_t max_item = kMaxItem)
      : on_item_(std::move(on_item)), max_item_(max_item) {}

  // False: the scan has ended before the list; feed no more.
  bool Feed(std::string_view bytes);
  // The list without its items. Complete once all bytes were fed.
  const std::string& rest() const { return rest_; }

 private:
  void Structure(char c);
  bool Separator(char c);
  void Keep(std::string_view piece);
  bool in_items() const { return items_at_ > 0; }

  const OnItem on_item_;
  const size_t max_item_;
  int depth_ = 0;
  int items_at_ = 0;  // the depth of the elements of "items" while inside of them, else 0
  bool in_string_ = false, escaped_ = false;
  bool ok_ = true;
  std::string name_;  // the last string at depth 1: a member's name when its value begins
  std::string item_, rest_;
};

}  // namespace crowdsurf::controller
