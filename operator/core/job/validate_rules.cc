#include "operator/core/job/validate_rules.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "base/manifest/field_defaults.h"
#include "base/manifest/fields.h"
#include "base/manifest/strategies.h"

namespace crowdsurf::controller {
namespace {

using manifest::IntegerDefault;
using manifest::kNotBuilt;
using manifest::NotBuilt;
using manifest::TextDefault;
using nlohmann::json;

std::optional<int64_t> Integer(const json& spec, std::string_view path) {
  const json* value = At(spec, path);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  if (!value->is_number_float()) return value->get<int64_t>();
  // One that no field takes is refused by its bounds; here it is only kept from overflowing.
  constexpr double kMost = 9e18;
  const double number = value->get<double>();
  return std::isnan(number) ? 0 : static_cast<int64_t>(std::clamp(number, -kMost, kMost));
}

// A field that is refused as a choice is judged as its default.
void CheckGradients(const json& spec, int64_t most, Report& report) {
  const bool given = At(spec, "averaging.globalBatch") != nullptr;
  if (TextAt(spec, "averaging.what") != "Gradients") {
    if (given) report.Add("spec.averaging.globalBatch", "is only for what: Gradients");
    return;
  }
  const std::string strategy =
      TextAt(spec, "averaging.strategy", TextDefault("averaging.strategy"));
  const json* roles = At(spec, "averaging.roles");
  const bool other_roles =
      roles != nullptr && roles->is_array() &&
      std::any_of(roles->begin(), roles->end(), [](const json& r) { return r != "Parameter"; });
  const manifest::GradientsJob job{
      .strategy = strategy,
      .group_size = Integer(spec, "averaging.groupSize")
                        .value_or(IntegerDefault<int64_t>("averaging.groupSize")),
      .max_workers = most,
      .global_batch = given,
      .blocking = TextAt(spec, "averaging.overlap", TextDefault("averaging.overlap")) == "Blocking",
      .outer = TextAt(spec, "averaging.outerOptimizer.type", "None") != "None",
      .other_roles = other_roles};
  for (const auto& [path, problem] : manifest::UnmetByGradients(job))
    report.Add("spec." + path, problem);
}

void CheckInt8(const json& spec, int64_t most, Report& report) {
  if (TextAt(spec, "averaging.compression") != "Int8") return;
  const std::string strategy =
      TextAt(spec, "averaging.strategy", TextDefault("averaging.strategy"));
  const manifest::Int8Job job{
      .strategy = strategy,
      .group_size = Integer(spec, "averaging.groupSize")
                        .value_or(IntegerDefault<int64_t>("averaging.groupSize")),
      .max_workers = most,
      .gradients = TextAt(spec, "averaging.what") == "Gradients"};
  for (const auto& [path, problem] : manifest::UnmetByInt8(job))
    report.Add("spec." + path, problem);
}

void CheckOneRound(const json& spec, Report& report) {
  if (TextAt(spec, "averaging.rounds") != "One") return;
  const std::string strategy =
      TextAt(spec, "averaging.strategy", TextDefault("averaging.strategy"));
  const manifest::OneRoundJob job{
      .strategy = strategy,
      .outer = TextAt(spec, "averaging.outerOptimizer.type", "None") != "None",
      .int8 = TextAt(spec, "averaging.compression") == "Int8",
      .gradients = TextAt(spec, "averaging.what") == "Gradients"};
  for (const auto& [path, problem] : manifest::UnmetByOneRound(job))
    report.Add("spec." + path, problem);
}

// What admission can know of the chosen strategy's needs (base/manifest/strategies.h). A strategy,
// mode or graph that does not exist is refused as a choice, and needs nothing.
void CheckNeeds(const json& spec, int64_t most, Report& report) {
  const std::string mode =
      TextAt(spec, "averaging.gossip.mode", TextDefault("averaging.gossip.mode"));
  const manifest::Needs* needs = manifest::FindNeeds(
      TextAt(spec, "averaging.strategy", TextDefault("averaging.strategy")), mode);
  if (needs == nullptr) return;
  std::string graph;
  if (!needs->graph.empty()) graph = TextAt(spec, "averaging." + std::string(needs->graph));
  const json* roles = At(spec, "averaging.roles");
  const bool moments = roles != nullptr && roles->is_array() &&
                       std::find(roles->begin(), roles->end(), "OptimizerState") != roles->end();
  for (const auto& [path, problem] : manifest::UnmetNeeds(*needs, {graph, most, moments}))
    report.Add("spec." + path, problem);
}

void CheckReplicas(const json& spec, Report& report) {
  const int64_t replicas = Integer(spec, "replicas").value_or(IntegerDefault<int>("replicas"));
  const int64_t least = Integer(spec, "minReplicas").value_or(IntegerDefault<int>("minReplicas"));
  const int64_t most = Integer(spec, "maxReplicas").value_or(replicas);
  if (replicas < least) {
    report.Add("spec.replicas",
               std::to_string(replicas) + " is below minReplicas " + std::to_string(least));
  }
  if (replicas > most) {
    report.Add("spec.replicas",
               std::to_string(replicas) + " is above maxReplicas " + std::to_string(most));
  }
  CheckNeeds(spec, most, report);
  CheckGradients(spec, most, report);
  CheckInt8(spec, most, report);
  CheckOneRound(spec, report);
}

void CheckAveraging(const json& spec, Report& report) {
  const std::string strategy =
      TextAt(spec, "averaging.strategy", TextDefault("averaging.strategy"));
  for (const auto& [block, owner] : manifest::kStrategyBlocks) {
    if (At(spec, "averaging." + std::string(block)) != nullptr && strategy != owner) {
      report.Add("spec.averaging." + std::string(block),
                 "is only for strategy " + std::string(owner) + ", this job has " + strategy);
    }
  }
  const std::string outer =
      TextAt(spec, "averaging.outerOptimizer.type", TextDefault("averaging.outerOptimizer.type"));
  if (outer != "None" && manifest::IndexOf(strategy, manifest::kOuterStrategies) < 0)
    report.Add("spec.averaging.outerOptimizer.type", manifest::WhyNoOuter(strategy));
  const json* interval = At(spec, "averaging.interval");
  if (interval != nullptr && interval->is_object()) {
    int given = 0;
    for (const char* unit : {"steps", "samples", "seconds"})
      given += Member(interval, unit) != nullptr;
    if (given > 1)
      report.Add("spec.averaging.interval", "has more than one of steps, samples, seconds");
  }
}

void CheckTarget(const json& spec, Report& report) {
  const json* target = At(spec, "target");
  const bool any = target != nullptr && (Member(target, "samples") || Member(target, "steps") ||
                                         Member(target, "seconds") || Member(target, "metric"));
  if (!any) {
    report.Add("spec.target", "needs at least one of samples, steps, seconds, metric");
  }
  const json* metric = At(spec, "target.metric");
  if (metric == nullptr || !metric->is_object()) return;
  if (Member(metric, "name") == nullptr) report.Add("spec.target.metric.name", "is missing");
  const bool below = Member(metric, "below") != nullptr;
  const bool above = Member(metric, "above") != nullptr;
  if (below == above) {
    report.Add("spec.target.metric",
               below ? "has both below and above; one is wanted" : "needs below or above");
  }
}

void CheckFailurePolicy(const json& spec, Report& report) {
  const json* rules = At(spec, "failurePolicy.rules");
  if (rules == nullptr || !rules->is_array()) return;
  for (size_t i = 0; i < rules->size(); ++i) {
    const json* rule = &(*rules)[i];
    if (!rule->is_object()) continue;
    const std::string path = "spec.failurePolicy.rules[" + std::to_string(i) + "]";
    const json* codes = Member(rule, "onExitCodes");
    const json* conditions = Member(rule, "onPodConditions");
    if ((codes != nullptr) == (conditions != nullptr)) {
      report.Add(path, codes != nullptr ? "has both onExitCodes and onPodConditions; one is wanted"
                                        : "needs onExitCodes or onPodConditions");
    }
    if (codes != nullptr && codes->is_object() && Member(codes, "values") == nullptr) {
      report.Add(path + ".onExitCodes.values", "is missing");
    }
    if (conditions == nullptr || !conditions->is_array()) continue;
    for (size_t j = 0; j < conditions->size(); ++j) {
      if (Member(&(*conditions)[j], "type") == nullptr) {
        report.Add(path + ".onPodConditions[" + std::to_string(j) + "].type", "is missing");
      }
    }
  }
}

// A DNS name or an IPv4 address; a single-label name of a Service is one. Underscores are in use.
bool IsHostName(std::string_view host) {
  if (host.empty() || host.size() > 253 || host.front() == '.' || host.front() == '-') return false;
  return host.find("..") == std::string_view::npos &&
         std::all_of(host.begin(), host.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' ||
                  c == '_';
         });
}

// "[fe80::1%eth0]".
bool IsAddressInBrackets(std::string_view host) {
  if (host.size() < 4 || host.front() != '[' || host.back() != ']') return false;
  host = host.substr(1, host.size() - 2);
  host = host.substr(0, host.find('%'));
  return std::count(host.begin(), host.end(), ':') >= 2 &&
         host.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos;
}

bool IsHostAndPort(const std::string& address) {
  // The last colon: an IPv6 address has others before it.
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) return false;
  const std::string_view host = std::string_view(address).substr(0, colon);
  if (!IsHostName(host) && !IsAddressInBrackets(host)) return false;
  const std::string port = address.substr(colon + 1);
  // std::stoi throws on text and on numbers that are too large.
  if (port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos) return false;
  const int number = std::stoi(port);
  return number > 0 && number < 65536;
}

void CheckElsewhere(const json& spec, Report& report) {
  const json* peers = At(spec, "discovery.bootstrapPeers");
  if (peers != nullptr && peers->is_array()) {
    for (size_t i = 0; i < peers->size(); ++i) {
      const json& peer = (*peers)[i];
      if (peer.is_string() && !IsHostAndPort(peer.get_ref<const std::string&>())) {
        report.Add("spec.discovery.bootstrapPeers[" + std::to_string(i) + "]",
                   Show(peer) + " is not host:port");
      }
    }
  }
  const std::string volume = TextAt(spec, "checkpoint.volume");
  if (!volume.empty() && At(spec, "checkpoint.uri") != nullptr) {
    report.Add("spec.checkpoint", "has both volume and uri; one is wanted");
  }
  for (const NotBuilt& field : kNotBuilt) {
    const json* value = At(spec, std::string(field.path));
    if (value == nullptr || *value == false) continue;  // false is their default
    report.Add("spec." + std::string(field.path), WhyNotBuilt(field));
  }
  if (volume.empty()) return;
  const json* volumes = At(spec, "template.spec.volumes");
  const bool found = volumes != nullptr && volumes->is_array() &&
                     std::any_of(volumes->begin(), volumes->end(), [&](const json& candidate) {
                       const json* name = Member(&candidate, "name");
                       return name != nullptr && *name == volume;
                     });
  if (!found) report.Add("spec.checkpoint.volume", volume + " is not a volume of spec.template");
}

}  // namespace

void CheckRules(const json& spec, Report& report) {
  CheckReplicas(spec, report);
  CheckAveraging(spec, report);
  CheckTarget(spec, report);
  CheckFailurePolicy(spec, report);
  CheckElsewhere(spec, report);
}

}  // namespace crowdsurf::controller
