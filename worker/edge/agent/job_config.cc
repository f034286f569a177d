// Reading the file `config`: JSON from outside, so everything is checked.
#include <absl/strings/str_cat.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "worker/edge/agent/agent_options.h"

namespace crowdsurf::worker {
namespace {

using Json = nlohmann::json;

std::string Written(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// One object of the file, with the path that violations name.
class Fields {
 public:
  Fields(const Json& json, std::string path, std::vector<std::string>& violations)
      : json_(json), path_(std::move(path)), violations_(violations) {
    if (!json_.is_object()) Complain("", "is not an object");
  }

  bool Has(const char* name) const {
    return json_.is_object() && json_.contains(name) && !json_.at(name).is_null();
  }
  const Json& At(const char* name) const { return json_.at(name); }
  Fields Object(const char* name) const { return Fields(json_.at(name), Path(name), violations_); }
  std::string Path(const char* name) const {
    return path_.empty() ? name : absl::StrCat(path_, ".", name);
  }
  void Complain(const char* name, const std::string& what) const {
    violations_.push_back(absl::StrCat(*name == '\0' ? path_ : Path(name), ": ", what));
  }

  // A finite number within [least, most]; `fallback` when absent or wrong.
  double Number(const char* name, double fallback, double least, double most) const {
    if (!Has(name)) return fallback;
    const Json& value = At(name);
    if (!value.is_number()) {
      Complain(name, absl::StrCat(CutText(Written(value), 40), " is not a number"));
      return fallback;
    }
    const double number = value.get<double>();
    if (!(number >= least)) {
      Complain(name, absl::StrCat(number, " is below ", least));
      return fallback;
    }
    if (!(number <= most)) {
      Complain(name, absl::StrCat(number, " is above ", most));
      return fallback;
    }
    return number;
  }
  std::optional<double> MaybeNumber(const char* name, double least, double most) const {
    if (!Has(name)) return std::nullopt;
    return Number(name, least, least, most);
  }

  // The enumerator whose name the text is; names in the order of the enumerators.
  template <class E>
  E Enum(const char* name, E fallback, std::initializer_list<const char*> names) const {
    if (!Has(name)) return fallback;
    const std::string text = At(name).is_string() ? At(name).get<std::string>() : Written(At(name));
    int index = 0;
    std::string allowed;
    for (const char* candidate : names) {
      if (text == candidate) return static_cast<E>(index);
      allowed = absl::StrCat(allowed, allowed.empty() ? "" : ", ", candidate);
      ++index;
    }
    Complain(name, absl::StrCat("\"", CutText(text, 40), "\" is none of ", allowed));
    return fallback;
  }

 private:
  const Json& json_;
  std::string path_;
  std::vector<std::string>& violations_;
};

void ReadInterval(const Fields& averaging, AveragingConfig& out) {
  if (!averaging.Has("interval")) return;
  const Fields interval = averaging.Object("interval");
  int given = 0;
  const auto read = [&](const char* name, IntervalUnit unit) {
    if (!interval.Has(name)) return;
    ++given;
    out.interval_unit = unit;
    out.interval = interval.Number(name, 1, 1e-3, 1e15);
  };
  read("steps", IntervalUnit::kSteps);
  read("samples", IntervalUnit::kSamples);
  read("seconds", IntervalUnit::kSeconds);
  if (given != 1) averaging.Complain("interval", "must be exactly one of steps, samples, seconds");
}

void ReadRoles(const Fields& averaging, std::vector<LinkRole>& out) {
  if (!averaging.Has("roles")) return;
  const Json& roles = averaging.At("roles");
  std::vector<LinkRole> read;
  for (const Json& role : roles.is_array() ? roles : Json::array({nullptr})) {
    const auto known = role.is_string() ? LinkRoleNamed(role.get<std::string>()) : std::nullopt;
    if (!known || *known == LinkRole::kGradient) {
      averaging.Complain("roles", "must be a list of Parameter, OptimizerState, Buffer");
      return;
    }
    read.push_back(*known);
  }
  if (!read.empty()) out = std::move(read);
}

// What the manifest can name and this agent cannot do.
void RefuseUnbuilt(const Fields& averaging, const AveragingConfig& config) {
  if (!IsBuilt(config.strategy)) {
    averaging.Complain("strategy",
                       "is not built yet (Moshpit, AllReduce, Gossip, A2CiD2 and RelaySum are)");
  }
  if (config.grid == GridMode::kPaper) averaging.Complain("grid", "Paper is not built yet");
  if (averaging.Has("compression") && averaging.At("compression").is_string()) {
    const std::string name = averaging.At("compression").get<std::string>();
    if (name == "Int8" || name == "Int4") {
      averaging.Complain("compression", absl::StrCat(name, " is not built yet"));
    }
  }
  if (averaging.Has("what") && averaging.At("what") != "Parameters") {
    averaging.Complain("what", "only Parameters is built yet");
  }
  if (averaging.Has("outerOptimizer") && averaging.At("outerOptimizer").is_object() &&
      averaging.At("outerOptimizer").value("type", "None") != "None") {
    averaging.Complain("outerOptimizer.type", "only None is built yet");
  }
}

GraphKind ReadGraph(const Fields& block, const char* name, GraphKind fallback) {
  return block.Enum(name, fallback,
                    {"Ring", "Chain", "Torus", "Star", "BinaryTree", "DoubleBinaryTree",
                     "Exponential", "Hypercube", "Complete", "BaseK"});
}

// The block of the chosen strategy on a graph, with its defaults.
void ReadMixing(const Fields& averaging, AveragingConfig& config) {
  MixingConfig& mixing = config.mixing;
  if (!IsOnGraph(config.strategy)) return;
  config.rounds = RoundsMode::kAll;  // the average that a view begins with is a full one
  if (config.strategy == StrategyKind::kGossip) {
    mixing.graph = GraphKind::kExponential;
    if (!averaging.Has("gossip")) return;
    const Fields block = averaging.Object("gossip");
    mixing.graph = ReadGraph(block, "graph", mixing.graph);
    mixing.gossip = block.Enum("mode", mixing.gossip, {"Pairs", "Neighbours"});
  } else if (config.strategy == StrategyKind::kA2CiD2) {
    mixing.graph = GraphKind::kRing;
    if (!averaging.Has("a2cid2")) return;
    const Fields block = averaging.Object("a2cid2");
    mixing.graph = ReadGraph(block, "graph", mixing.graph);
    mixing.rate_com = block.Number("rateCom", mixing.rate_com, 1e-3, 1e3);
  } else {
    mixing.graph = GraphKind::kDoubleBinaryTree;
    if (!averaging.Has("relaySum")) return;
    const Fields block = averaging.Object("relaySum");
    mixing.graph = ReadGraph(block, "tree", mixing.graph);
    mixing.lr_scale = block.Enum("lrScale", 0, {"Auto", "Off"}) == 0;
    mixing.max_lag = static_cast<uint16_t>(block.Number("maxLag", mixing.max_lag, 1, 1024));
    // Eight workers stand for any number: whether a kind is a tree does not depend on it.
    if (const auto trees = TreesOf(mixing.graph, 8); !trees.ok())
      block.Complain("tree", std::string(trees.status().message()));
  }
}

void ReadAveraging(const Fields& averaging, JobConfig& out) {
  AveragingConfig& config = out.averaging;
  config.strategy = averaging.Enum(
      "strategy", config.strategy,
      {"Moshpit", "AllReduce", "Gossip", "A2CiD2", "RelaySum", "PowerGossip", "IST"});
  config.group_size =
      static_cast<uint16_t>(averaging.Number("groupSize", config.group_size, 2, 64));
  ReadInterval(averaging, config);
  config.compression = averaging.Enum("compression", config.compression,
                                      {"None", "Float16", "BFloat16", "Int8", "Int4"});
  config.overlap = averaging.Enum("overlap", config.overlap, {"Delayed", "Blocking"});
  config.rounds = averaging.Enum("rounds", config.rounds, {"All", "One"});
  config.weighting = averaging.Enum("weighting", config.weighting, {"Samples", "Equal"});
  config.grid = averaging.Enum("grid", config.grid, {"Fitted", "Paper"});
  ReadRoles(averaging, out.roles);
  ReadMixing(averaging, config);
  RefuseUnbuilt(averaging, config);
}

void ReadTarget(const Fields& fields, Target& out) {
  out.samples = fields.MaybeNumber("samples", 0, 1e18);
  if (const auto steps = fields.MaybeNumber("steps", 0, 1e15)) {
    out.steps = static_cast<uint64_t>(*steps);
  }
  out.seconds = fields.MaybeNumber("seconds", 0, 1e10);
  if (!fields.Has("metric")) return;
  const Fields metric = fields.Object("metric");
  if (!metric.Has("name") || !metric.At("name").is_string()) {
    return fields.Complain("metric.name", "is required");
  }
  if (metric.Has("below") == metric.Has("above")) {
    return fields.Complain("metric", "must have exactly one of below, above");
  }
  out.metric = metric.At("name").get<std::string>();
  out.metric_below = metric.Has("below");
  out.metric_bound = metric.Number(out.metric_below ? "below" : "above", 0, -1e300, 1e300);
}

}  // namespace

ParsedJobConfig ParseJobConfig(std::string_view json) {
  ParsedJobConfig out;
  const Json file = Json::parse(json, nullptr, false);
  if (file.is_discarded()) {
    out.violations.push_back("config: is not JSON");
    return out;
  }
  const Fields fields(file, "", out.violations);
  if (!file.is_object()) return out;
  out.config.averaging.generation = static_cast<uint64_t>(fields.Number("generation", 0, 0, 9e15));
  if (fields.Has("averaging")) ReadAveraging(fields.Object("averaging"), out.config);
  if (fields.Has("target")) ReadTarget(fields.Object("target"), out.config.averaging.target);
  if (fields.Has("checkpoint")) {
    const Fields checkpoint = fields.Object("checkpoint");
    out.config.checkpoint_seconds = checkpoint.Number("intervalSeconds", 300, 1, 1e9);
    out.config.checkpoint_retain = static_cast<int>(checkpoint.Number("retain", 3, 1, 1000));
  }
  return out;
}

}  // namespace crowdsurf::worker
