#include "worker/edge/link/link_api.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"

namespace crowdsurf::worker {
namespace {

using Json = nlohmann::json;

// A registration nests five deep: the object, tensors, a tensor, its units, one of them.
constexpr int kMaxJsonDepth = 16;

// Parses `body` as an object; nesting is bounded so that garbage cannot cost more than its length.
StatusOr<Json> ParseObject(std::string_view body) {
  int depth = 0;
  for (const char c : body) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > kMaxJsonDepth) return absl::InvalidArgumentError("the body nests too deeply");
  }
  Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return absl::InvalidArgumentError("the body is no JSON object");
  }
  return json;
}

// Metric and loss values: finite numbers only; NaN and infinity are not JSON, null means unknown.
std::optional<double> Finite(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const double v = value.get<double>();
  return std::isfinite(v) ? std::optional(v) : std::nullopt;
}

Json NumberOrNull(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }

StatusOr<uint64_t> Whole(const Json& object, const char* key, uint64_t missing) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return missing;
  if (!it->is_number_unsigned()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" must be a whole number >= 0"));
  }
  return it->get<uint64_t>();
}

// "group_out" and "group_in", the short form: the unit group of `axis`, -1 for none.
Status AddGroup(const Json& object, const char* key, size_t axis, std::vector<UnitAxis>& units) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return absl::OkStatus();
  if (!it->is_number_integer() || it->get<int64_t>() < -1 || it->get<int64_t>() > 65'535) {
    return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" must be -1 to 65535"));
  }
  const auto group = it->get<int64_t>();
  if (group >= 0)
    units.push_back({.axis = static_cast<uint32_t>(axis), .group = static_cast<uint32_t>(group)});
  return absl::OkStatus();
}

StatusOr<UnitAxis> ParseUnitAxis(const Json& json) {
  if (!json.is_object()) return absl::InvalidArgumentError("each of \"units\" is an object");
  UnitAxis axis;
  const auto read = [&](const char* key, uint64_t least, uint64_t most, uint32_t& out) -> Status {
    ASSIGN_OR_RETURN(const uint64_t value, Whole(json, key, out));
    if (value < least || value > most) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", key, "\" of \"units\" must be ", least, " to ", most));
    }
    out = static_cast<uint32_t>(value);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(read("axis", 0, kMaxLinkDimensions - 1, axis.axis));
  RETURN_IF_ERROR(read("group", 0, 65'535, axis.group));
  RETURN_IF_ERROR(read("size", 1, kMaxUnits, axis.unit_size));
  RETURN_IF_ERROR(read("blocks", 1, kMaxUnits, axis.blocks));
  return axis;
}

Status ParseUnits(const Json& json, LinkTensor& t) {
  RETURN_IF_ERROR(AddGroup(json, "group_out", 0, t.units));
  RETURN_IF_ERROR(AddGroup(json, "group_in", t.shape.empty() ? 0 : t.shape.size() - 1, t.units));
  const auto units = json.find("units");
  if (units == json.end() || units->is_null()) return absl::OkStatus();
  if (!units->is_array() || units->size() > kMaxLinkDimensions) {
    return absl::InvalidArgumentError("\"units\" must be an array of at most 8 axes");
  }
  for (const Json& entry : *units) {
    ASSIGN_OR_RETURN(t.units.emplace_back(), ParseUnitAxis(entry));
  }
  return absl::OkStatus();
}

// A value that is no text reads as empty, which is no name, dtype or role.
std::string Text(const Json& object, const char* key, const char* missing) {
  const auto it = object.find(key);
  if (it == object.end()) return missing;
  return it->is_string() ? it->get<std::string>() : std::string();
}

StatusOr<LinkTensor> ParseTensor(const Json& json) {
  if (!json.is_object()) return absl::InvalidArgumentError("each tensor is an object");
  LinkTensor t;
  t.name = Text(json, "name", "");
  const std::string dtype = Text(json, "dtype", "float32"), role = Text(json, "role", "Parameter");
  const auto d = LinkDtypeNamed(dtype);
  if (!d) {
    return absl::InvalidArgumentError(absl::StrCat("dtype \"", dtype, "\": only float32 is known"));
  }
  const auto r = LinkRoleNamed(role);
  if (!r) {
    return absl::InvalidArgumentError(absl::StrCat(
        "role \"", role, "\": one of Parameter, OptimizerState, Buffer, Gradient, Frozen"));
  }
  t.dtype = *d;
  t.role = *r;
  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array() || shape->size() > kMaxLinkDimensions) {
    return absl::InvalidArgumentError("\"shape\" must be an array of at most 8 numbers");
  }
  for (const Json& n : *shape) {
    if (!n.is_number_unsigned()) {
      return absl::InvalidArgumentError("\"shape\" holds whole numbers >= 1");
    }
    t.shape.push_back(n.get<uint64_t>());
  }
  ASSIGN_OR_RETURN(t.rows, Whole(json, "rows", 0));
  ASSIGN_OR_RETURN(t.cols, Whole(json, "cols", 0));
  RETURN_IF_ERROR(ParseUnits(json, t));
  return t;
}

Json RegionOffsets(const LinkGeometry& g) {
  Json tensors = Json::array();
  for (const LinkTensor& t : g.tensors) {
    tensors.push_back({{"name", t.name},
                       {"dtype", LinkDtypeName(t.dtype)},
                       {"role", LinkRoleName(t.role)},
                       {"shape", t.shape},
                       {"offset", t.shared() ? Json(t.offset) : Json(nullptr)}});
  }
  return tensors;
}

Json NoticeJson(const LinkNotice& notice) {
  if (!notice.leaving) return {{"leaving", false}};
  Json json = {{"leaving", true}, {"reason", notice.reason}};
  if (notice.deadline_unix_ns > 0) {  // 0: the platform does not say when
    json["deadline"] = static_cast<double>(notice.deadline_unix_ns) * 1e-9;
  }
  return json;
}

// A name that came from outside may be no UTF-8: never let that throw.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

StatusOr<RegisterRequest> ParseRegister(std::string_view body) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(body));
  const auto tensors = json.find("tensors");
  if (tensors == json.end() || !tensors->is_array() || tensors->size() > kMaxLinkTensors) {
    return absl::InvalidArgumentError("\"tensors\" must be an array of at most 65536 tensors");
  }
  RegisterRequest request;
  // Only what JSON can get wrong: LayOutLink checks names, shapes and units against each other.
  for (size_t i = 0; i < tensors->size(); ++i) {
    auto tensor = ParseTensor((*tensors)[i]);
    if (!tensor.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors[", i, "]: ", tensor.status().message()));
    }
    request.tensors.push_back(*std::move(tensor));
  }
  if (const auto metrics = json.find("metrics"); metrics != json.end()) {
    if (!metrics->is_array() || metrics->size() > kLinkMetrics) {
      return absl::InvalidArgumentError("\"metrics\" must be an array of at most 16 names");
    }
    std::set<std::string> seen;
    for (const Json& name : *metrics) {
      if (!name.is_string() || name.get<std::string>().size() > kMaxLinkName ||
          !seen.insert(name.get<std::string>()).second) {
        return absl::InvalidArgumentError("\"metrics\" holds different names of at most 256 bytes");
      }
      request.metrics.push_back(name.get<std::string>());
    }
  }
  for (const auto& [key, target] : {std::pair("fresh", &request.fresh),
                                    {"first", &request.first},
                                    {"bells", &request.bells},
                                    {"gradients", &request.gradients}}) {
    const auto it = json.find(key);
    if (it == json.end()) continue;
    if (!it->is_boolean()) {
      return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" must be true or false"));
    }
    *target = it->get<bool>();
  }
  return request;
}

std::string WriteRegisterAnswer(const RegisterAnswer& answer) {
  // Clients in other languages read these keys (docs/trainer-link.md, section 3).
  const LinkGeometry& g = *answer.geometry;
  return Dump({{"version", kLinkVersion},
               {"session", answer.session},
               {"job", answer.job},
               {"worker", answer.worker},
               {"seed", answer.seed},
               {"hold", answer.hold},
               {"hang_after", answer.hang_after},
               {"gradients", answer.gradients},
               {"schema", g.schema.hex()},
               {"file", "tensors"},
               {"file_bytes", g.file_bytes},
               {"elements", g.elements},
               {"outbox", g.outbox_offset},
               {"inbox", g.inbox_offset},
               {"index_sets", {{"offset", g.index_offset}, {"bytes", g.index_bytes}}},
               {"tensors", RegionOffsets(g)}});
}

StatusOr<ProgressRequest> ParseProgress(std::string_view body) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(body));
  ProgressRequest request;
  if (const auto loss = json.find("loss"); loss != json.end()) request.loss = Finite(*loss);
  const auto metrics = json.find("metrics");
  if (metrics == json.end()) return request;
  if (!metrics->is_object() || metrics->size() > kLinkMetrics) {
    return absl::InvalidArgumentError("\"metrics\" must be an object of at most 16 numbers");
  }
  for (const auto& [name, value] : metrics->items()) {
    const auto v = Finite(value);
    if (name.size() > kMaxLinkName) {
      return absl::InvalidArgumentError("a metric's name has at most 256 bytes");
    }
    // JSON has no NaN: clients send null for what they do not know.
    if (v) request.metrics[name] = *v;
  }
  return request;
}

StatusOr<DataSpec> ParseData(std::string_view body, uint64_t seed) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(body));
  DataSpec spec;
  ASSIGN_OR_RETURN(spec.samples, Whole(json, "samples", 0));
  ASSIGN_OR_RETURN(const uint64_t unit, Whole(json, "unit", 1));
  ASSIGN_OR_RETURN(spec.seed, Whole(json, "seed", seed));
  if (spec.samples < 1 || spec.samples > kMaxDataSamples)
    return absl::InvalidArgumentError("\"samples\" must be 1 to 2^48: the length of the data set");
  if (unit < 1 || unit > kMaxUnit)
    return absl::InvalidArgumentError("\"unit\" must be 1 to 2^24 samples");
  spec.unit = static_cast<uint32_t>(unit);
  return spec;
}

std::string WriteLeases(const LeasesGranted& granted) {
  Json leases = Json::array();
  for (const Lease& lease : granted.leases)
    leases.push_back({lease.epoch, lease.begin, lease.count});
  Json json = {{"stream", granted.stream},
               {"begin", granted.begin},
               {"leases", std::move(leases)},
               {"closed", granted.closed},
               {"other", nullptr}};
  if (!granted.other.none()) {
    json["other"] = {{"samples", granted.other.samples},
                     {"unit", granted.other.unit},
                     {"seed", granted.other.seed}};
  }
  return Dump(json);
}

StatusOr<double> ParseBusy(std::string_view body) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(body));
  const auto it = json.find("seconds");
  const std::optional<double> seconds = it == json.end() ? std::nullopt : Finite(*it);
  if (!seconds || *seconds < 0 || *seconds > kMaxBusySeconds)
    return absl::InvalidArgumentError("\"seconds\" must be 0 to 604800, a week");
  return *seconds;
}

StatusOr<std::string> ParseLeave(std::string_view body) {
  if (body.empty()) return std::string();
  ASSIGN_OR_RETURN(const Json json, ParseObject(body));
  return CutText(Text(json, "reason", ""), kMaxLinkName);
}

std::string WriteNotice(const LinkNotice& notice) { return Dump(NoticeJson(notice)); }

std::string WriteState(const LinkStateAnswer& s) {
  Json roles = Json::array();
  for (const LinkRole role : s.roles) roles.push_back(LinkRoleName(role));
  Json json = {{"job", s.job},
               {"worker", s.worker},
               {"roles", std::move(roles)},
               {"registered", s.geometry != nullptr},
               {"connected", s.counters.connected},
               {"hold", s.hold},
               {"stop", s.stop},
               {"steps", s.counters.steps},
               {"samples", s.counters.samples},
               {"published", s.counters.published},
               {"applied", s.counters.applied},
               {"stall_seconds", s.counters.stall_seconds},
               {"loss", NumberOrNull(s.counters.loss)},
               {"metrics", s.counters.metrics},
               {"averaging", s.averaging},
               {"job_samples", NumberOrNull(s.job_samples)},
               {"notice", NoticeJson(s.notice)}};
  if (s.geometry != nullptr) {
    json["schema"] = s.geometry->schema.hex();
    json["elements"] = s.geometry->elements;
    json["tensors"] = RegionOffsets(*s.geometry);
  }
  return Dump(json);
}

std::string WriteError(std::string_view words) { return Dump({{"error", words}}); }

}  // namespace crowdsurf::worker
