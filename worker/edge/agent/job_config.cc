// Reading the file `config`: JSON from outside, so everything is checked.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/manifest/field_defaults.h"
#include "base/manifest/fields.h"
#include "base/text.h"
#include "worker/edge/agent/agent_options.h"

namespace crowdsurf::worker {
namespace {

using Json = nlohmann::json;
using manifest::ChoiceDefault;
using manifest::kGraphs;

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
  // Collected and read on: the first mistake does not hide the others.
  void Complain(const char* name, const std::string& what) const {
    violations_.push_back(absl::StrCat(*name == '\0' ? path_ : Path(name), ": ", what));
  }

  // A finite number within the bounds of the manifest's field; `fallback` when absent or wrong.
  double Number(const char* name, double fallback) const {
    const manifest::Field& row = Row(name);
    return Number(name, fallback, row.min, row.max);
  }
  // The same for what the manifest has no field of.
  double Number(const char* name, double fallback, double min, double max) const {
    if (!Has(name)) return fallback;
    const Json& value = At(name);
    if (!value.is_number()) {
      Complain(name, absl::StrCat(CutText(Written(value), 40), " is not a number"));
      return fallback;
    }
    const double number = value.get<double>();
    if (!(number >= min)) {
      Complain(name, absl::StrCat(number, " is below ", min));
      return fallback;
    }
    if (!(number <= max)) {
      Complain(name, absl::StrCat(number, " is above ", max));
      return fallback;
    }
    return number;
  }
  std::optional<double> MaybeNumber(const char* name) const {
    if (!Has(name)) return std::nullopt;
    return Number(name, Row(name).min);
  }

  // The enumerator that has the place of the field's choice in `names`.
  template <class E>
  E Choice(const char* name, E fallback, std::string_view names) const {
    if (!Has(name)) return fallback;
    const std::string text = Text(name);
    const std::string_view choices = Row(name).choices;
    // `names` has every choice; its order is that of the enumerators.
    if (manifest::IndexOf(text, choices) >= 0) {
      return static_cast<E>(manifest::IndexOf(text, names));
    }
    Complain(name, absl::StrCat("\"", CutText(text, 40), "\" is none of ",
                                manifest::ListOfChoices(choices)));
    return fallback;
  }
  // Enumerators in the order of the field's choices.
  template <class E>
  E Choice(const char* name, E fallback) const {
    return Choice(name, fallback, Row(name).choices);
  }
  // A choice that the manifest has and no agent.
  void RefuseUnbuilt(const char* name) const {
    const manifest::Field& row = Row(name);
    const std::string text = Has(name) ? Text(name) : std::string();
    if (row.built.empty() || manifest::IndexOf(text, row.choices) < 0) return;
    if (manifest::IndexOf(text, row.built) >= 0) return;
    Complain(name, manifest::WhyNotBuilt(text, row));
  }

  // The manifest's row of a field of this object.
  const manifest::Field& Row(const char* name) const {
    const manifest::Field* row = manifest::FindField(Path(name));
    CHECK(row != nullptr);
    return *row;
  }

 private:
  std::string Text(const char* name) const {
    return At(name).is_string() ? At(name).get<std::string>() : Written(At(name));
  }

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
    out.interval = interval.Number(name, out.interval);
  };
  read("steps", IntervalUnit::kSteps);
  read("samples", IntervalUnit::kSamples);
  read("seconds", IntervalUnit::kSeconds);
  if (given != 1) averaging.Complain("interval", "must be exactly one of steps, samples, seconds");
}

void ReadRoles(const Fields& averaging, std::vector<LinkRole>& out) {
  if (!averaging.Has("roles")) return;
  const Json& roles = averaging.At("roles");
  const manifest::Field& row = averaging.Row("roles");
  std::vector<LinkRole> read;
  // What is no list is read as a list of one wrong role, so it is complained of once.
  for (const Json& role : roles.is_array() ? roles : Json::array({nullptr})) {
    const auto known = role.is_string() ? LinkRoleNamed(role.get<std::string>()) : std::nullopt;
    if (!known || manifest::IndexOf(role.get<std::string>(), row.choices) < 0) {
      averaging.Complain("roles",
                         absl::StrCat("must be a list of ", manifest::ListOfChoices(row.choices)));
      return;
    }
    read.push_back(*known);
  }
  if (!read.empty()) out = std::move(read);
}

// What the manifest can name and this agent cannot do.
void RefuseUnbuilt(const Fields& averaging) {
  for (const char* name : {"strategy", "compression", "grid"}) averaging.RefuseUnbuilt(name);
}

void ReadOuter(const Fields& averaging, AveragingConfig& config) {
  if (!averaging.Has("outerOptimizer")) return;
  const Fields block = averaging.Object("outerOptimizer");
  OuterOptimizer outer;
  outer.kind = block.Choice("type", outer.kind);
  outer.learning_rate = block.Number("learningRate", outer.learning_rate);
  outer.momentum = block.Number("momentum", outer.momentum);
  outer.warmup_samples = static_cast<uint64_t>(
      block.Number("warmupSamples", static_cast<double>(outer.warmup_samples)));
  if (outer.kind == OuterKind::kNone) return;
  if (TakesOuterOptimizer(config.strategy))
    config.outer = outer;
  else
    block.Complain("type",
                   manifest::WhyNoOuter(manifest::NameAt(static_cast<int>(config.strategy),
                                                         averaging.Row("strategy").choices)));
}

void ReadGradients(const Fields& averaging, JobConfig& job) {
  enum class What : uint8_t { kParameters, kGradients };
  const bool given = averaging.Has("globalBatch");
  if (averaging.Choice("what", What::kParameters) == What::kParameters) {
    if (given) averaging.Complain("globalBatch", "is only for what: Gradients");
    return;
  }
  AveragingConfig& config = job.averaging;
  const std::string_view strategy =
      manifest::NameAt(static_cast<int>(config.strategy), averaging.Row("strategy").choices);
  const manifest::GradientsJob shape{
      .strategy = strategy,
      .group_size = config.group_size,
      .global_batch = given,
      .blocking = config.overlap == Overlap::kBlocking,
      .outer = config.outer.kind != OuterKind::kNone,
      .other_roles = job.roles != std::vector<LinkRole>{LinkRole::kParameter}};
  const size_t under = std::string_view("averaging.").size();
  for (const auto& [path, problem] : manifest::UnmetByGradients(shape))
    averaging.Complain(path.substr(under).c_str(), problem);
  config.global_batch = static_cast<uint64_t>(averaging.Number("globalBatch", 1));
}

// Pre: the strategy, the group's size and gradients are read.
void CheckInt8(const Fields& averaging, AveragingConfig& config) {
  if (config.compression != WireFormat::kInt8) return;
  const manifest::Int8Job job{.strategy = manifest::NameAt(static_cast<int>(config.strategy),
                                                           averaging.Row("strategy").choices),
                              .group_size = config.group_size,
                              .gradients = AveragesGradients(config)};
  const size_t under = std::string_view("averaging.").size();
  for (const auto& [path, problem] : manifest::UnmetByInt8(job))
    averaging.Complain(path.substr(under).c_str(), problem);
}

// Pre: the strategy, the compression, the outer optimizer and gradients are read.
void CheckOneRound(const Fields& averaging, const AveragingConfig& config) {
  if (config.rounds != RoundsMode::kOne) return;
  const manifest::OneRoundJob job{.strategy = manifest::NameAt(static_cast<int>(config.strategy),
                                                               averaging.Row("strategy").choices),
                                  .outer = config.outer.kind != OuterKind::kNone,
                                  .int8 = config.compression == WireFormat::kInt8,
                                  .gradients = AveragesGradients(config)};
  const size_t under = std::string_view("averaging.").size();
  for (const auto& [path, problem] : manifest::UnmetByOneRound(job))
    averaging.Complain(path.substr(under).c_str(), problem);
}

void ReadPower(const Fields& block, MixingConfig& mixing) {
  mixing.graph = block.Choice("graph", mixing.graph);
  mixing.rank = static_cast<uint16_t>(block.Number("rank", mixing.rank));
  mixing.iterations = static_cast<uint16_t>(block.Number("iterations", mixing.iterations));
  mixing.dense_every =
      static_cast<uint64_t>(block.Number("denseEvery", static_cast<double>(mixing.dense_every)));
}

// The block of the chosen strategy on a graph, with its defaults.
void ReadMixing(const Fields& averaging, AveragingConfig& config) {
  MixingConfig& mixing = config.mixing;
  if (!IsOnGraph(config.strategy)) return;
  config.rounds = RoundsMode::kAll;  // the average that a view begins with is a full one
  if (config.strategy == StrategyKind::kGossip) {
    mixing.graph = ChoiceDefault<GraphKind>("averaging.gossip.graph");
    if (!averaging.Has("gossip")) return;
    const Fields block = averaging.Object("gossip");
    mixing.graph = block.Choice("graph", mixing.graph);
    mixing.gossip = block.Choice("mode", mixing.gossip);
  } else if (config.strategy == StrategyKind::kA2CiD2) {
    mixing.graph = ChoiceDefault<GraphKind>("averaging.a2cid2.graph");
    if (!averaging.Has("a2cid2")) return;
    const Fields block = averaging.Object("a2cid2");
    mixing.graph = block.Choice("graph", mixing.graph);
    mixing.rate_com = block.Number("rateCom", mixing.rate_com);
  } else if (config.strategy == StrategyKind::kPowerGossip) {
    mixing.graph = ChoiceDefault<GraphKind>("averaging.powerGossip.graph");
    if (averaging.Has("powerGossip")) ReadPower(averaging.Object("powerGossip"), mixing);
  } else {
    mixing.graph = ChoiceDefault<GraphKind>("averaging.relaySum.tree", kGraphs);
    if (!averaging.Has("relaySum")) return;
    const Fields block = averaging.Object("relaySum");
    mixing.graph = block.Choice("tree", mixing.graph, kGraphs);
    mixing.lr_scale = block.Choice("lrScale", LrScale::kAuto) == LrScale::kAuto;
    mixing.max_lag = static_cast<uint16_t>(block.Number("maxLag", mixing.max_lag));
  }
}

void ReadIst(const Fields& averaging, const JobConfig& job) {
  if (job.averaging.strategy != StrategyKind::kIst) return;
  if (std::find(job.roles.begin(), job.roles.end(), LinkRole::kOptimizerState) != job.roles.end())
    averaging.Complain("roles",
                       "OptimizerState cannot be averaged with IST: a worker's optimizer "
                       "has moments of its own units only");
  if (!averaging.Has("ist")) return;
  const Fields block = averaging.Object("ist");
  for (const char* name : {"store", "shares"}) block.RefuseUnbuilt(name);
}

void ReadAveraging(const Fields& averaging, JobConfig& out) {
  AveragingConfig& config = out.averaging;
  config.strategy = averaging.Choice("strategy", config.strategy);
  config.group_size = static_cast<uint16_t>(averaging.Number("groupSize", config.group_size));
  ReadInterval(averaging, config);
  config.compression = averaging.Choice("compression", config.compression);
  config.overlap = averaging.Choice("overlap", config.overlap);
  config.rounds = averaging.Choice("rounds", config.rounds);
  config.weighting = averaging.Choice("weighting", config.weighting);
  config.grid = averaging.Choice("grid", config.grid);
  ReadRoles(averaging, out.roles);
  ReadMixing(averaging, config);
  ReadIst(averaging, out);
  ReadOuter(averaging, config);
  ReadGradients(averaging, out);
  CheckInt8(averaging, config);
  CheckOneRound(averaging, config);
  RefuseUnbuilt(averaging);
}

void ReadTarget(const Fields& fields, Target& out) {
  out.samples = fields.MaybeNumber("samples");
  if (const auto steps = fields.MaybeNumber("steps")) {
    out.steps = static_cast<uint64_t>(*steps);
  }
  out.seconds = fields.MaybeNumber("seconds");
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
  out.metric_bound = metric.Number(out.metric_below ? "below" : "above", 0);
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
  // Below 2^53, so a double holds it exactly.
  out.config.averaging.generation = static_cast<uint64_t>(fields.Number("generation", 0, 0, 9e15));
  if (fields.Has("averaging")) ReadAveraging(fields.Object("averaging"), out.config);
  if (fields.Has("target")) ReadTarget(fields.Object("target"), out.config.averaging.target);
  if (fields.Has("checkpoint")) {
    const Fields checkpoint = fields.Object("checkpoint");
    out.config.checkpoint_seconds =
        checkpoint.Number("intervalSeconds", out.config.checkpoint_seconds);
    out.config.checkpoint_retain =
        static_cast<int>(checkpoint.Number("retain", out.config.checkpoint_retain));
  }
  return out;
}

}  // namespace crowdsurf::worker
