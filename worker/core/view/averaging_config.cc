#include "worker/core/view/averaging_config.h"

#include <cmath>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kMaxMetricName = 256;

template <class T, class Write>
void Optional(const std::optional<T>& value, ByteWriter& out, Write write) {
  out.Bool(value.has_value());
  if (value) write(*value);
}

// An enumerator 0..last.
template <class E>
E EnumeratorOf(ByteReader& in, int value, E last) {
  if (value > static_cast<int>(last)) in.Fail();
  // A number that is no enumerator fails the reader, and is never cast.
  return in.ok() ? static_cast<E>(value) : E{};
}
template <class E>
E Enumerator(ByteReader& in, E last) {
  return EnumeratorOf(in, in.U8(), last);
}

std::string_view StrategyName(StrategyKind kind) {
  return manifest::NameAt(static_cast<int>(kind), manifest::RowOf("averaging.strategy").choices);
}

bool Good(double value) { return std::isfinite(value) && value >= 0; }

void Encode(const Target& target, ByteWriter& out) {
  Optional(target.samples, out, [&](double v) { out.F64(v); });
  Optional(target.steps, out, [&](uint64_t v) { out.U64(v); });
  Optional(target.seconds, out, [&](double v) { out.F64(v); });
  Optional(target.metric, out, [&](const std::string& v) { out.String(v); });
  out.F64(target.metric_bound);
  out.Bool(target.metric_below);
}

Target DecodeTarget(ByteReader& in) {
  Target target;
  if (in.Bool()) target.samples = in.F64();
  if (in.Bool()) target.steps = in.U64();
  if (in.Bool()) target.seconds = in.F64();
  if (in.Bool()) target.metric = in.String(kMaxMetricName);
  target.metric_bound = in.F64();
  target.metric_below = in.Bool();
  if (!Good(target.samples.value_or(0)) || !Good(target.seconds.value_or(0)) ||
      !std::isfinite(target.metric_bound))
    in.Fail();
  return target;
}

// Of PowerGossip's views alone: those of the others are as they were before it, hash and all.
void EncodePower(const MixingConfig& mixing, ByteWriter& out) {
  out.U16(mixing.rank);
  out.U16(mixing.iterations);
  out.U64(mixing.dense_every);
}

void DecodePower(ByteReader& in, MixingConfig& mixing) {
  mixing.rank = in.U16();
  mixing.iterations = in.U16();
  mixing.dense_every = in.U64();
  const auto dense = static_cast<double>(mixing.dense_every);
  if (!manifest::RowOf("averaging.powerGossip.rank").Allows(mixing.rank)) in.Fail();
  if (!manifest::RowOf("averaging.powerGossip.iterations").Allows(mixing.iterations)) in.Fail();
  if (!manifest::RowOf("averaging.powerGossip.denseEvery").Allows(dense)) in.Fail();
}

// The high bit of the strategy's byte: an outer optimizer follows. Views without one are as they
// were before it, hash and all.
constexpr uint8_t kOuterFollows = 0x80;
// The next bit: the job averages gradients, and its global batch follows.
constexpr uint8_t kBatchFollows = 0x40;

uint8_t StrategyByte(const AveragingConfig& config) {
  const auto strategy = static_cast<uint8_t>(config.strategy);
  const int outer = config.outer.kind == OuterKind::kNone ? 0 : kOuterFollows;
  const int batch = AveragesGradients(config) ? kBatchFollows : 0;
  return static_cast<uint8_t>(strategy | outer | batch);
}

void DecodeBatch(ByteReader& in, AveragingConfig& config) {
  config.global_batch = in.U64();
  const auto batch = static_cast<double>(config.global_batch);
  if (!manifest::RowOf("averaging.globalBatch").Allows(batch)) in.Fail();
  const manifest::GradientsJob job{.strategy = StrategyName(config.strategy),
                                   .group_size = config.group_size,
                                   .global_batch = true,
                                   .blocking = config.overlap == Overlap::kBlocking,
                                   .outer = config.outer.kind != OuterKind::kNone};
  if (!manifest::UnmetByGradients(job).empty()) in.Fail();
}

void EncodeOuter(const OuterOptimizer& outer, ByteWriter& out) {
  out.U8(static_cast<uint8_t>(outer.kind));
  out.F64(outer.learning_rate);
  out.F64(outer.momentum);
  out.U64(outer.warmup_samples);
}

void DecodeOuter(ByteReader& in, AveragingConfig& config) {
  OuterOptimizer& outer = config.outer;
  outer.kind = Enumerator(in, OuterKind::kNesterov);
  outer.learning_rate = in.F64();
  outer.momentum = in.F64();
  outer.warmup_samples = in.U64();
  // No optimizer is no bit: there is one encoding for each configuration.
  if (outer.kind == OuterKind::kNone || !TakesOuterOptimizer(config.strategy)) in.Fail();
  if (!manifest::RowOf("averaging.outerOptimizer.learningRate").Allows(outer.learning_rate))
    in.Fail();
  if (!manifest::RowOf("averaging.outerOptimizer.momentum").Allows(outer.momentum)) in.Fail();
  if (!manifest::RowOf("averaging.outerOptimizer.warmupSamples")
           .Allows(static_cast<double>(outer.warmup_samples)))
    in.Fail();
}

}  // namespace

bool IsBuilt(StrategyKind kind) {
  constexpr const manifest::Field& kRow = manifest::RowOf("averaging.strategy");
  constexpr std::string_view kBuilt = kRow.built.empty() ? kRow.choices : kRow.built;
  return manifest::IndexOf(manifest::NameAt(static_cast<int>(kind), kRow.choices), kBuilt) >= 0;
}

bool TakesOuterOptimizer(StrategyKind kind) {
  return manifest::IndexOf(StrategyName(kind), manifest::kOuterStrategies) >= 0;
}

const manifest::Needs& NeedsOf(StrategyKind kind, GossipMode mode) {
  constexpr const manifest::Field& kStrategies = manifest::RowOf("averaging.strategy");
  constexpr const manifest::Field& kModes = manifest::RowOf("averaging.gossip.mode");
  const manifest::Needs* needs =
      manifest::FindNeeds(manifest::NameAt(static_cast<int>(kind), kStrategies.choices),
                          manifest::NameAt(static_cast<int>(mode), kModes.choices));
  CHECK(needs != nullptr);
  return *needs;
}

bool IsOnGraph(StrategyKind kind) { return !NeedsOf(kind).graph.empty(); }

Overlap OverlapOf(const AveragingConfig& config) {
  constexpr const manifest::Field& kRow = manifest::RowOf("averaging.overlap");
  const std::string_view always = NeedsOf(config).overlap;
  return always.empty() ? config.overlap
                        : static_cast<Overlap>(manifest::IndexOf(always, kRow.choices));
}

void Encode(const AveragingConfig& config, ByteWriter& out) {
  out.U64(config.generation);
  out.U8(StrategyByte(config));
  out.U16(config.group_size);
  out.U8(static_cast<uint8_t>(config.interval_unit));
  out.F64(config.interval);
  out.U8(static_cast<uint8_t>(config.compression));
  out.U8(static_cast<uint8_t>(config.overlap));
  out.U8(static_cast<uint8_t>(config.rounds));
  out.U8(static_cast<uint8_t>(config.weighting));
  out.U8(static_cast<uint8_t>(config.grid));
  out.U8(static_cast<uint8_t>(config.mixing.graph));
  out.U8(static_cast<uint8_t>(config.mixing.gossip));
  out.F64(config.mixing.rate_com);
  out.Bool(config.mixing.lr_scale);
  out.U16(config.mixing.max_lag);
  if (config.outer.kind != OuterKind::kNone) EncodeOuter(config.outer, out);
  if (AveragesGradients(config)) out.U64(config.global_batch);
  if (config.strategy == StrategyKind::kPowerGossip) EncodePower(config.mixing, out);
  Encode(config.target, out);
}

std::optional<AveragingConfig> DecodeAveragingConfig(ByteReader& in) {
  AveragingConfig config;
  config.generation = in.U64();
  const uint8_t strategy = in.U8();
  const bool outer_follows = (strategy & kOuterFollows) != 0;
  config.strategy =
      EnumeratorOf(in, strategy & ~(kOuterFollows | kBatchFollows), StrategyKind::kIst);
  config.group_size = in.U16();
  config.interval_unit = Enumerator(in, IntervalUnit::kSeconds);
  config.interval = in.F64();
  config.compression = Enumerator(in, WireFormat::kInt8);
  config.overlap = Enumerator(in, Overlap::kBlocking);
  config.rounds = Enumerator(in, RoundsMode::kOne);
  config.weighting = Enumerator(in, Weighting::kEqual);
  config.grid = Enumerator(in, GridMode::kPaper);
  config.mixing.graph = Enumerator(in, kLastGraphKind);
  config.mixing.gossip = Enumerator(in, GossipMode::kNeighbours);
  config.mixing.rate_com = in.F64();
  config.mixing.lr_scale = in.Bool();
  config.mixing.max_lag = in.U16();
  if (outer_follows) DecodeOuter(in, config);
  if ((strategy & kBatchFollows) != 0) DecodeBatch(in, config);
  if (config.strategy == StrategyKind::kPowerGossip) DecodePower(in, config.mixing);
  config.target = DecodeTarget(in);
  // A view comes from a peer, so the manifest's bounds are checked again.
  if (!manifest::RowOf("averaging.groupSize").Allows(config.group_size)) in.Fail();
  const manifest::Int8Job job{.strategy = StrategyName(config.strategy),
                              .group_size = config.group_size,
                              .gradients = AveragesGradients(config)};
  if (config.compression == WireFormat::kInt8 && !manifest::UnmetByInt8(job).empty()) in.Fail();
  const manifest::OneRoundJob one{.strategy = StrategyName(config.strategy),
                                  .outer = config.outer.kind != OuterKind::kNone,
                                  .int8 = config.compression == WireFormat::kInt8,
                                  .gradients = AveragesGradients(config)};
  if (config.rounds == RoundsMode::kOne && !manifest::UnmetByOneRound(one).empty()) in.Fail();
  if (!std::isfinite(config.interval) || config.interval <= 0) in.Fail();
  const MixingConfig& mixing = config.mixing;
  if (!manifest::RowOf("averaging.a2cid2.rateCom").Allows(mixing.rate_com)) in.Fail();
  if (!manifest::RowOf("averaging.relaySum.maxLag").Allows(mixing.max_lag)) in.Fail();
  if (!in.ok()) return std::nullopt;
  return config;
}

}  // namespace crowdsurf::worker
