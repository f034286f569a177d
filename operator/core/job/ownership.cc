#include "operator/core/job/ownership.h"

#include <algorithm>

#include "operator/core/job/json_path.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr size_t kLongestObjectName = 253;
constexpr std::string_view kGroup = "crowdsurf.io/";

// One at most: the API server refuses a second controller among the owners.
const json* ControllerOf(const json& object) {
  const json* found = nullptr;
  Each(object, "metadata.ownerReferences", [&](const json& owner) {
    const json* controls = Member(&owner, "controller");
    if (controls != nullptr && *controls == true) found = &owner;
  });
  return found;
}

// A kind in a message: what is none is not repeated.
std::string KindOf(const json& owner) {
  const std::string kind = TextAt(owner, "kind");
  const bool letters =
      !kind.empty() && kind.size() <= 63 && std::all_of(kind.begin(), kind.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      });
  return letters ? kind : "an object";
}

}  // namespace

Ownership OwnershipOf(const json& object, const TrainingJob& job) {
  const json* owner = ControllerOf(object);
  if (owner == nullptr) return Ownership::kForeign;
  if (TextAt(*owner, "uid") == job.uid) {
    const bool going = At(object, "metadata.deletionTimestamp") != nullptr;
    return going ? Ownership::kLeaving : Ownership::kOurs;
  }
  // A name has one job at a time: of another uid there is none any more.
  const bool of_this_name = TextAt(*owner, "kind") == "TrainingJob" &&
                            TextAt(*owner, "apiVersion").starts_with(kGroup) &&
                            TextAt(*owner, "name") == job.name;
  return of_this_name ? Ownership::kLeaving : Ownership::kForeign;
}

std::string OwnerText(const json& object) {
  const json* owner = ControllerOf(object);
  if (owner == nullptr) return "nobody's";
  const std::string name = TextAt(*owner, "name");
  return KindOf(*owner) + "/" + (IsObjectName(name) ? name : "?") + "'s";
}

bool Holds(const json& found, const json& wanted) {
  if (wanted.is_object()) {
    return found.is_object() &&
           std::all_of(wanted.items().begin(), wanted.items().end(), [&](const auto& member) {
             const auto own = found.find(member.key());
             return own != found.end() && Holds(*own, member.value());
           });
  }
  if (wanted.is_array()) {
    return found.is_array() && found.size() == wanted.size() &&
           std::equal(wanted.begin(), wanted.end(), found.begin(),
                      [](const json& want, const json& own) { return Holds(own, want); });
  }
  return found == wanted;
}

bool IsObjectName(std::string_view name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > kLongestObjectName) return false;
  if (!plain(name.front()) || !plain(name.back())) return false;
  return std::all_of(name.begin(), name.end(),
                     [&](char c) { return plain(c) || c == '-' || c == '.'; });
}

}  // namespace crowdsurf::controller
