#include "operator/core/observe/watch_parser.h"

#include <optional>

namespace crowdsurf::controller {
namespace {

using Json = nlohmann::json;

std::optional<WatchEvent::Type> TypeOf(const std::string& name) {
  if (name == "ADDED") return WatchEvent::Type::kAdded;
  if (name == "MODIFIED") return WatchEvent::Type::kModified;
  if (name == "DELETED") return WatchEvent::Type::kDeleted;
  if (name == "BOOKMARK") return WatchEvent::Type::kBookmark;
  if (name == "ERROR") return WatchEvent::Type::kFailed;
  return std::nullopt;
}

// The string at object[first][second], empty when there is none.
std::string StringAt(const Json& object, const char* first, const char* second) {
  const auto outer = object.find(first);
  if (outer == object.end() || !outer->is_object()) return {};
  const auto inner = outer->find(second);
  return inner != outer->end() && inner->is_string() ? inner->get<std::string>() : std::string();
}

}  // namespace

void WatchParser::Feed(std::string_view bytes, std::vector<WatchEvent>& out) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    // The rest of such a line is dropped up to its end. The counter tells the caller to list anew.
    if (!skipping_ && partial_.size() + piece.size() > max_line_) {
      skipping_ = true;
      partial_.clear();
      ++oversized_;
    }
    if (end == std::string_view::npos) {
      if (!skipping_) partial_.append(piece);
      return;
    }
    if (!skipping_ && partial_.empty()) {
      Line(piece, out);
    } else if (!skipping_) {
      partial_.append(piece);
      Line(partial_, out);
    }
    partial_.clear();
    skipping_ = false;
    bytes.remove_prefix(end + 1);
  }
}

void WatchParser::Line(std::string_view line, std::vector<WatchEvent>& out) {
  if (line.find_first_not_of(" \r\t") == std::string_view::npos) return;
  Json event = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!event.is_object() || !event.contains("object") || !event["object"].is_object() ||
      !event.contains("type") || !event["type"].is_string()) {
    ++garbled_;
    return;
  }
  const auto type = TypeOf(event["type"].get<std::string>());
  if (!type) {
    ++garbled_;
    return;
  }
  WatchEvent result{*type, std::move(event["object"]), {}};
  if (*type == WatchEvent::Type::kFailed) {
    const auto code = result.object.find("code");
    // 410 Gone: the server has forgotten the version that we watch from, and only a new list helps.
    if (code != result.object.end() && code->is_number_integer() && *code == 410) {
      result.type = WatchEvent::Type::kExpired;
    }
  } else {
    result.resource_version = StringAt(result.object, "metadata", "resourceVersion");
    // Without a version the watch could not go on after this event.
    if (result.resource_version.empty()) {
      ++garbled_;
      return;
    }
  }
  out.push_back(std::move(result));
}

}  // namespace crowdsurf::controller
