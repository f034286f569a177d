// The schema of a pod template, the one that the CRD carries, for manifests that no API server has
// seen: what `kubectl apply` would refuse is refused here in the same places.
//
// A subset of structural schemas: type, properties, required, items, enum, format int32, map keys,
// int-or-string, additionalProperties and x-kubernetes-preserve-unknown-fields; null is absent.
// Pure, any thread; linear in the value. Source: Kubernetes' API concepts, "structural schemas";
// the text is deploy/crd/pod-template-schema.json, which the build puts into the library.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "operator/core/job/validate_rules.h"

namespace crowdsurf::controller {

const nlohmann::json& PodTemplateSchema();

// Everything in which `value`, of any shape, breaks `schema`, under the path of the value.
void CheckSchema(const nlohmann::json& value, const nlohmann::json& schema, const std::string& path,
                 Report& report);

}  // namespace crowdsurf::controller
