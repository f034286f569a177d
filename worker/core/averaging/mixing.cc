#include "worker/core/averaging/mixing.h"

#include <algorithm>

#include "base/check.h"
#include "base/digest.h"
#include "base/overloaded.h"
#include "worker/core/port/config.h"
#include "worker/core/port/messages.h"
#include "worker/core/port/peer_metrics.h"
#include "worker/core/strategy/strategy.h"
#include "worker/core/strategy/strategy_factory.h"
#include "worker/core/strategy/tensor_needs.h"

namespace crowdsurf::worker {
namespace {

// The trainer's totals come about twice a second: the step's length is their mean over some
// seconds, and follows a change of speed as fast.
constexpr double kPaceGain = 0.25;

}  // namespace

InstanceId MixInstanceOf(const ViewHash& view) {
  ByteWriter out;
  out.String("mix");
  out.Raw(view.view());
  const Digest digest = Sha256(out.bytes());
  return *InstanceId::From(digest.view().first(InstanceId::kBytes));
}

Mixing::Mixing(const PeerConfig& config, PeerMetrics& metrics, Logger log, Rng rng)
    : config_(config),
      metrics_(metrics),
      log_(log.For("mixing")),
      rng_(rng),
      pairs_(rng_.Next() >> 1) {}

Mixing::~Mixing() = default;

double Mixing::lr_scale() const { return strategy_ ? strategy_->lr_scale() : 1.0; }

void Mixing::SetVector(uint64_t elements, const TensorViews& tensors) {
  elements_ = elements;
  tensors_ = tensors;
  ask_ = Ask::kNone;
  last_.reset();
  pace_ = {};
}

// ---- the view ----------------------------------------------------------------------------------

void Mixing::OnView(Time now, const View& view, const ViewHash& hash, Actions& out) {
  EndFrames(now, out);
  Stop(out);
  if (!IsOnGraph(view.config.strategy) || view.Find(config_.id) == nullptr) return;
  strategy_ = MakeGraphStrategy(view.config, rng_.Fork(hash.hex()));
  view_ = hash;
  instance_ = MixInstanceOf(hash);
  wire_ = view.config.compression;
  members_ = static_cast<uint32_t>(view.members.size());
  strategy_->SetVector(elements_, edges_);
  strategy_->SetTensors(tensors_);
  SayUnmet(view.config);
  StrategyActions actions;
  strategy_->OnView(now, view, config_.id, actions);
  Run(now, actions, out);
  if (last_) Tell(now, pace_, out);
}

// Once for each trainer and setting, not at each change of the members.
void Mixing::SayUnmet(const AveragingConfig& config) {
  std::string unmet = UnmetByTensors(config, tensors_);
  if (!unmet.empty() && unmet != unmet_) log_.Warning("need not met", {{"why", unmet}});
  unmet_ = std::move(unmet);
}

void Mixing::Start(Time now, Region inbox, Actions& out) {
  if (!strategy_ || started_ || draining_) return;
  started_ = true;
  log_.Info("mixing", {{"members", members_}});
  Tell(now, MixingStarted{inbox}, out);
}

void Mixing::Stop(Actions& out) {
  if (ask_ == Ask::kTaken) out.push_back(ReleaseOutbox{asks_});
  // A request that is out is still answered: until then it counts as unneeded.
  ask_ = ask_ == Ask::kAsked || ask_ == Ask::kUnneeded ? Ask::kUnneeded : Ask::kNone;
  // A trainer must not go on with the learning rate of a strategy that has ended.
  if (std::exchange(scaled_, false)) out.push_back(TellLrScale{1.0});
  strategy_.reset();
  edges_.Reset({}, 1, 1, WireFormat::kFloat32, EdgeOrder::kLatestWins);
  pairs_.Clear();
  power_.Clear();
  leaving_.clear();
  started_ = uses_pairs_ = uses_power_ = false;
  timer_ = Time::Infinite();
  instance_ = InstanceId();
  Count();
}

// ---- the snapshot ------------------------------------------------------------------------------

std::optional<AveragingId> Mixing::wanted() const {
  return ask_ == Ask::kWanted ? std::optional(asks_) : std::nullopt;
}

bool Mixing::OnSnapshot(Time now, const Published& published, Actions& out) {
  if (ask_ == Ask::kUnneeded) {
    ask_ = Ask::kNone;
    metrics_.mixing.snapshots_unused->Add();
    return false;
  }
  if (ask_ != Ask::kAsked || published.averaging != asks_) return false;
  ask_ = Ask::kTaken;
  Tell(now, SnapshotTaken{published.step, published.samples}, out);
  return true;
}

void Mixing::OnRefused(Time now, Actions& out) {
  const bool waited = ask_ == Ask::kAsked;
  if (ask_ == Ask::kUnneeded || waited) ask_ = Ask::kNone;
  if (waited) Tell(now, worker::SnapshotRefused{}, out);
}

// ---- the strategy ------------------------------------------------------------------------------

void Mixing::Tell(Time now, const Event& event, Actions& out) {
  if (!strategy_) return;
  StrategyActions actions;
  strategy_->OnEvent(now, event, actions);
  Run(now, actions, out);
}

void Mixing::SendMessage(const SendEdge& send, Actions& out) {
  const auto link = edges_.Find(send.peer, send.tag);
  CHECK(link.has_value());
  leaving_[*link] = {.sequence = send.sequence, .own = send.region, .sum = send.sum};
  out.push_back(MixSend{.to = send.peer,
                        .tag = send.tag,
                        .sequence = send.sequence,
                        .chunks = edges_.ChunksOf(edges_.links()[*link].extent)});
}

// What sets the transports up; false: the action is another one.
bool Mixing::RunSetting(const StrategyAction& action, Actions& out) {
  const auto chunk = static_cast<uint32_t>(config_.chunk_elements);
  if (const auto* reserve = std::get_if<worker::ReserveRegions>(&action)) {
    out.push_back(*reserve);
  } else if (const auto* pairs = std::get_if<UsePairs>(&action)) {
    pairs_.Reset(*pairs, elements_, chunk, wire_);
    uses_pairs_ = true;
  } else if (const auto* edges = std::get_if<UseEdges>(&action)) {
    edges_.Reset(edges->links, members_, chunk, edges->wire, edges->order);
    leaving_.assign(edges->links.size(), {});
  } else if (const auto* timer = std::get_if<SetStrategyTimer>(&action)) {
    timer_ = timer->at;
  } else if (const auto* scale = std::get_if<SetLrScale>(&action)) {
    scaled_ = scale->scale != 1.0;
    out.push_back(TellLrScale{scale->scale});
  } else if (const auto* wake = std::get_if<WakeAtTotals>(&action)) {
    out.push_back(WakeAt{wake->steps, wake->samples});
  } else {
    return false;
  }
  return true;
}

void Mixing::Run(Time now, StrategyActions& actions, Actions& out) {
  for (const StrategyAction& action : actions) {
    if (RunSetting(action, out) || RunPairs(now, action, out)) continue;
    if (const auto* kernel = std::get_if<RunKernel>(&action)) {
      out.push_back(*kernel);
    } else if (const auto* power = std::get_if<PowerAction>(&action)) {
      RunPower(now, *power, out);
    } else if (const auto* send = std::get_if<SendEdge>(&action)) {
      SendMessage(*send, out);
    } else if (std::holds_alternative<AskSnapshot>(action)) {
      if (ask_ == Ask::kNone) ++asks_;
      // A request that is out already serves the new exchange.
      ask_ = ask_ == Ask::kUnneeded ? Ask::kAsked : Ask::kWanted;
    } else if (const auto* mixed = std::get_if<DeliverMixed>(&action)) {
      CHECK(ask_ == Ask::kTaken);
      ask_ = Ask::kNone;
      ++delivered_;
      metrics_.mixing.delivered->Add();
      out.push_back(DeliverMix{asks_, mixed->region});
    } else if (std::holds_alternative<ReleaseSnapshot>(action)) {
      if (ask_ == Ask::kTaken) out.push_back(ReleaseOutbox{asks_});
      ask_ = Ask::kNone;
    }
  }
}

// ---- peers -------------------------------------------------------------------------------------

std::optional<MixPlace> Mixing::Place(const MixArrived& chunk) const {
  if (!strategy_ || chunk.instance != instance_) return std::nullopt;
  if (uses_pairs_) return pairs_.Place(chunk);
  if (uses_power_) return power_.Place(chunk);
  return edges_.Wants(chunk) ? edges_.Place(chunk) : std::nullopt;
}

void Mixing::OnChunk(Time now, const MixArrived& chunk, Actions& out) {
  if (!strategy_ || chunk.instance != instance_) {
    ++foreign_;
    return Count();
  }
  if (uses_pairs_) {
    PairExchange::Out said;
    pairs_.OnChunk(now, chunk, said);
    return Run(now, said, out);
  }
  if (uses_power_) return OnFrameChunk(now, chunk, out);
  const auto link = edges_.Find(chunk.from, chunk.tag);
  const uint64_t before = link ? edges_.Newest(*link) : 0;
  if (edges_.OnChunk(chunk) == EdgeMailbox::Taken::kTaken && edges_.Newest(*link) > before)
    Tell(now, EdgeArrived{chunk.from, chunk.tag, edges_.links()[*link].region}, out);
  Count();
}

std::optional<MixChunk> Mixing::Describe(const PeerId& to, MixTag tag, uint64_t sequence,
                                         uint32_t chunk) const {
  std::optional<MixChunk> result;
  if (uses_pairs_) {
    result = pairs_.Describe(to, tag, sequence, chunk);
  } else if (uses_power_) {
    result = power_.Describe(to, sequence, chunk);
  } else {
    const auto link = edges_.Find(to, tag);
    if (!link || leaving_[*link].sequence != sequence) return std::nullopt;
    if (chunk >= edges_.ChunksOf(edges_.links()[*link].extent)) return std::nullopt;
    result = edges_.Describe(*link, chunk, leaving_[*link].own, leaving_[*link].sum, sequence);
  }
  if (result) result->instance = instance_;
  return result;
}

void Mixing::OnSent(Time now, const MixSent& sent, Actions&) {
  if (uses_pairs_) pairs_.OnSent(now, sent.to, sent.tag, sent.sequence);
  if (uses_power_) power_.OnSent(sent.to, sent.sequence);
}

void Mixing::OnPeerDown(Time now, const PeerId& peer, Actions& out) {
  PairExchange::Out said;
  pairs_.OnPeerDown(now, peer, said);
  Run(now, said, out);
  OnNeighbourDown(now, peer, out);
  Tell(now, PeerDown{peer}, out);
}

// ---- the job's count ---------------------------------------------------------------------------

ModelAge Mixing::age() const { return started_ ? strategy_->age() : ModelAge(); }

void Mixing::OnCounted(Time now, AveragingId averaging, const ModelAge& total, Actions& out) {
  if (!total.none()) Tell(now, AgesCounted{averaging, total}, out);
}

// ---- time --------------------------------------------------------------------------------------

void Mixing::OnProgress(Time now, const Progress& progress, Actions& out) {
  if (last_ && progress.step > last_->step && now > last_at_) {
    const double seconds = (now - last_at_).seconds();
    const auto follow = [&](double& value, double measured) {
      value = value == 0 ? measured : value + kPaceGain * (measured - value);
    };
    follow(pace_.step_seconds, seconds / static_cast<double>(progress.step - last_->step));
    if (progress.samples > last_->samples)
      follow(pace_.sample_seconds, seconds / (progress.samples - last_->samples));
  }
  if (!last_ || progress.step != last_->step) {
    last_ = progress;
    last_at_ = now;
  }
  pace_.step = progress.step;
  pace_.samples = progress.samples;
  pairs_.SetStep(Seconds(pace_.step_seconds));
  Tell(now, pace_, out);
}

void Mixing::OnTimer(Time now, Actions& out) {
  PairExchange::Out said;
  pairs_.OnTimer(now, said);
  Run(now, said, out);
  OnFramesTimer(now, out);
  if (now < timer_) return;
  timer_ = Time::Infinite();
  Tell(now, StrategyTimer{}, out);
}

Time Mixing::NextDeadline() const {
  return std::min({timer_, pairs_.NextDeadline(), power_.NextDeadline()});
}

void Mixing::Count() {
  metrics_.mixing.Count(pairs_.counters(), edges_.counters(), foreign_);
  metrics_.mixing.Count(power_.counters());
}

}  // namespace crowdsurf::worker
