// Crd: the CustomResourceDefinition of TrainingJob, made from the field table (fields.h).
//
// One source: what Validate checks is what the API server checks. deploy/crd/trainingjobs.yaml is
// this function's output (compact JSON, which is YAML) and a test compares them. Structural schema,
// defaults, bounds, CEL rules with words, scale and status subresources, printer columns; under 100
// KB so that a plain `kubectl apply` works. Pure. Source: docs/manifest.md; the mixed pod template
// is deploy/crd/make_pod_template_schema.py's.
#pragma once

#include <nlohmann/json.hpp>

namespace crowdsurf::controller {

// pod_template: the schema of spec.template. The result is the whole object, apiVersion to spec.
nlohmann::json Crd(nlohmann::json pod_template);

}  // namespace crowdsurf::controller
