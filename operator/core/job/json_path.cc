#include "operator/core/job/json_path.h"

#include <algorithm>

#include "operator/core/job/rfc3339.h"

namespace crowdsurf::controller {

using nlohmann::json;

const json* Member(const json* object, std::string_view name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto it = object->find(std::string(name));
  return it == object->end() || it->is_null() ? nullptr : &*it;
}

const json* At(const json& object, std::string_view path) {
  const json* at = &object;
  while (at != nullptr && !path.empty()) {
    const size_t end = std::min(path.find('.'), path.size());
    at = Member(at, path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return at;
}

std::string TextAt(const json& object, std::string_view path, std::string_view fallback) {
  const json* value = At(object, path);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string(fallback);
}

std::string TextUnder(const json& object, const char* pointer) {
  const json::json_pointer at(pointer);
  if (!object.contains(at) || !object[at].is_string()) return {};
  return object[at].get<std::string>();
}

std::string JsonText(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<WallTime> InstantAt(const json& object, std::string_view path) {
  return ParseInstant(TextAt(object, path));
}

}  // namespace crowdsurf::controller
