// Rules in CEL of the CustomResourceDefinition, which the API server evaluates at each write
// (KEP-2876): what no single field of spec can say.
//
// Beside crd.h. Pure functions; any thread. Source: docs/manifest.md.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace crowdsurf::controller {

nlohmann::json CrdRule(const std::string& rule, const std::string& message);

// Pre: `spec` has the schemas of all fields.
void AddCrdRules(nlohmann::json& spec);

}  // namespace crowdsurf::controller
