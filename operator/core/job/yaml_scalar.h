// What kubectl reads a scalar of YAML as: YAML 1.1 as Go's yaml.v2 has it, which is not YAML 1.2.
//
// `yes`, `on` and `n` are booleans, `0777` is octal, `0b11`, `0x10` and `1_000` are numbers; dates
// and sexagesimal numbers are text. A manifest must not mean one thing here and another there.
// Pure, any thread. Source: sigs.k8s.io/yaml, goyaml.v2/resolve.go.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace crowdsurf::controller {

// A scalar without quotes and without a tag. Errors: InvalidArgument for infinity and NaN, which
// JSON cannot say and kubectl refuses, too.
StatusOr<nlohmann::json> ReadPlainScalar(const std::string& text);

// A scalar with an explicit tag, "tag:yaml.org,2002:int". Errors: InvalidArgument when it is not
// what the tag says, or the tag is none of str, int, float, bool and null.
StatusOr<nlohmann::json> ReadTaggedScalar(const std::string& tag, const std::string& text);

// `text` with the pairs of \u escapes that stand for characters beyond U+FFFF written out. YAML has
// no such pairs, but JSON has, and JSON is what kubectl takes a text for that begins with a brace.
// Anything but valid JSON is returned as it is.
std::string WithoutSurrogatePairs(std::string_view text);

}  // namespace crowdsurf::controller
