// Reading JSON that others wrote: a member, a path, a text, the items of a list.
//
// For documents of users, of the API server and of agents: whatever is missing, null or of another
// type reads as absent, never as an error. Pure, any thread; cost: one map look-up for each name.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"

namespace crowdsurf::controller {

// The member `name` of `object`, nullptr when `object` is no object, lacks it, or it is null.
const nlohmann::json* Member(const nlohmann::json* object, std::string_view name);
// Follows "averaging.interval.steps" (no lists). Names with dots in them: Member.
const nlohmann::json* At(const nlohmann::json& object, std::string_view path);
// The text at `path`, `fallback` when there is none.
std::string TextAt(const nlohmann::json& object, std::string_view path,
                   std::string_view fallback = {});
// The text at an RFC 6901 pointer, "/data/ca.pem": names with dots in them, items of lists.
std::string TextUnder(const nlohmann::json& object, const char* pointer);
// As it is sent and stored. Never fails: bytes that are no UTF-8 become U+FFFD.
std::string JsonText(const nlohmann::json& value);
// The RFC 3339 instant at `path`.
std::optional<WallTime> InstantAt(const nlohmann::json& object, std::string_view path);

// visit(item) for each item of the list at `path`.
template <class Visit>
void Each(const nlohmann::json& object, std::string_view path, Visit visit) {
  const nlohmann::json* list = At(object, path);
  if (list == nullptr || !list->is_array()) return;
  for (const nlohmann::json& item : *list) visit(item);
}

}  // namespace crowdsurf::controller
