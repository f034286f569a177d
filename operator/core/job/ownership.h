// Ownership: whose an object of the API server is, before a job's operator writes to it.
//
// The controlling owner's uid decides, and nothing else: a name, a label or a selector is only what
// somebody wrote. Input is from outside: odd fields read as absent. Pure, any thread.
// Source: client-go's ControllerRefManager, without adoption.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "operator/core/job/training_job.h"

namespace crowdsurf::controller {

enum class Ownership {
  kOurs,
  kLeaving,  // the garbage collector's: ours, or of a deleted job of this name; it goes by itself
  kForeign   // anybody's else, or nobody's: never changed, never deleted
};
Ownership OwnershipOf(const nlohmann::json& object, const TrainingJob& job);

// "nobody's", or the controlling owner: "Deployment/web's"; at most 320 bytes.
std::string OwnerText(const nlohmann::json& object);

// Whether `found` has all that `wanted` says; what a server or others add counts for nothing. Lists
// are compared item by item.
bool Holds(const nlohmann::json& found, const nlohmann::json& wanted);

// What may be the name of an object (RFC 1123 subdomain, 253 letters): safe in a path, in a
// certificate's name and in a message.
bool IsObjectName(std::string_view name);

}  // namespace crowdsurf::controller
