#include "simulator/chaos/peer_node.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/digest.h"

namespace crowdsurf::simulator {

using worker::Region;

namespace {

constexpr double kUnitsMissed = 0.03;  // of the snapshots of a job with IST

HostTimes TimesOf(const ChaosScenario& scenario) {
  HostTimes times{.fold = scenario.fold_time};
  if (scenario.fetch_part > Duration()) {
    times.fetch = scenario.fetch_part;
    times.fetch_parts = 4;
  }
  return times;
}

ActionHost<float>::Setup SetupOf(int node, const worker::PeerConfig& config,
                                 const ChaosScenario& scenario, PeerOutside& outside, Rng rng) {
  return {
      .config = config,
      .rng = rng,
      .elements = scenario.trainer.elements,
      .tensors = scenario.graph ? scenario.graph->tensors : worker::TensorViews(),
      .units = scenario.units,
      .gives_first = scenario.gives_first,
      .times = TimesOf(scenario),
      .log = scenario.log,
      .chunks = std::make_unique<WatchedChunks>(node, outside.origins(), outside.round_checkers())};
}

// In its place: rounds that are open read from there.
void WriteOver(RegionBuffer& region, const RegionBuffer& with) {
  std::copy(with.values.begin(), with.values.end(), region.values.begin());
  std::copy(with.origins.begin(), with.origins.end(), region.origins.begin());
}

TrainerOptions TrainerOf(const ChaosScenario& scenario, const Rng& rng) {
  TrainerOptions options = scenario.trainer;
  Rng speed = rng.Fork("speed");
  options.step_time = options.step_time * (1.0 + scenario.speed_spread * speed.UniformDouble());
  options.data = scenario.data;
  return options;
}

}  // namespace

PeerNode::PeerNode(int node, const worker::PeerConfig& config, const ChaosScenario& scenario,
                   PeerOutside& outside, const Rng& rng)
    : ActionHost(node, SetupOf(node, config, scenario, outside, rng.Fork("peer")), outside),
      scenario_(scenario),
      outside_(outside),
      trainer_(node, TrainerOf(scenario, rng), rng.Fork("trainer"), outside.violations()),
      units_rng_(rng.Fork("units")),
      filling_rng_(rng.Fork("filling")) {}

// ---- the trainer -------------------------------------------------------------------------------

worker::Progress PeerNode::Totals() const {
  return {trainer_.Steps(now()), trainer_.Samples(now()), {}, {}, LeaseProgress()};
}

worker::StreamProgress PeerNode::LeaseProgress() const {
  if (trainer_.leases() == nullptr) return {};
  worker::StreamProgress progress = trainer_.leases()->Progress(now());
  if (hides_) return {.at = {}, .waits = true};
  if (Planted(ChaosPlant::kClaimsMore) && progress.at.position > 0)
    progress.at.position += scenario_.data.unit;
  return progress;
}

void PeerNode::StartTrainer() {
  if (scenario_.gives_first && !trainer_.started())
    outside_.first_checkers().OnStart(index(), trainer_.parameters());
  trainer_.Start(now());
  if (const auto asked = std::exchange(asked_while_held_, std::nullopt)) RequestSnapshot(*asked);
  if (trainer_.leases() == nullptr || std::exchange(declared_, true)) return;
  // Its script comes to its loop a little later.
  DoAfter(scenario_.trainer.step_time, [this] { Local(worker::DataDeclared{scenario_.data}); });
}

void PeerNode::AdoptState(Region region) {
  if (!Planted(ChaosPlant::kKeepsOwn)) trainer_.Adopt(now(), At(region));
  if (scenario_.gives_first) outside_.first_checkers().OnStart(index(), trainer_.parameters());
  if (trainer_.leases() != nullptr)
    outside_.lease_checkers().OnAdopted(index(), trainer_.leases()->Done(now()));
}

void PeerNode::TellLeases(const worker::LeasesGranted& granted) {
  worker::LeasesGranted told = granted;
  if (Planted(ChaosPlant::kTrainsOn))
    for (worker::Lease& lease : told.leases) {
      const uint64_t back = std::min<uint64_t>(lease.begin, scenario_.data.unit);
      lease.begin -= back;
    }
  trainer_.Take(now(), told);
  // When it has none left; now, where it waits.
  DoAt(std::max(now(), trainer_.leases()->DryAt()), [this] { Local(Totals()); });
}

void PeerNode::Leave() {
  hides_ = scenario_.plant == ChaosPlant::kLeavesAtOnce;
  Local(Totals());  // what it has trained up to now
  Local(worker::LeaveAsked{});
}

void PeerNode::ReplaceTrainer() {
  filling_.reset();
  Local(worker::TrainerGone{});
  declared_ = false;
  Local(worker::TrainerRegistered{.schema = Sha256(AsBytes("schema")),
                                  .elements = scenario_.trainer.elements,
                                  .fresh = true,
                                  .tensors = {}});
}

void PeerNode::RequestSnapshot(worker::AveragingId averaging) {
  if (filling_)
    outside_.violations().Add(
        "outbox", absl::StrCat("node ", index(), " is asked for a snapshot while it copies one"));
  // A request that was released, or overtaken by another, publishes nothing.
  const uint64_t serial = ++request_serial_;
  if (!trainer_.started()) {
    if (scenario_.gives_first)
      DoAfter(scenario_.trainer.step_time, [this, averaging] { GiveFirst(averaging); });
    else
      asked_while_held_ = averaging;
    return;
  }
  DoAt(trainer_.NextBoundary(now()), [this, averaging, serial] {
    if (serial == request_serial_) Publish(averaging);
  });
}

void PeerNode::Publish(worker::AveragingId averaging) {
  const SnapshotId snapshot = outside_.peer_checkers().NewSnapshot(index(), Totals().samples);
  if (!trainer_.Publish(averaging, snapshot, outside_.origins().Of(snapshot),
                        At(Region::kOutbox))) {
    Local(worker::PublishRefused{averaging});
    return;
  }
  snapshot_ = snapshot;
  if (Planted(ChaosPlant::kInPartOnly)) At(Region::kOutbox).origins.front() = 0;
  if (Planted(ChaosPlant::kWithoutOwn))
    for (OriginId& origin : At(Region::kOutbox).origins) origin = 0;
  outside_.first_checkers().OnPublished(index(), snapshot);
  if (scenario_.graph) outside_.mixing_checkers().OnSnapshot(index(), At(Region::kOutbox).values);
  if (trainer_.leases() != nullptr)
    outside_.lease_checkers().OnSnapshot(index(), snapshot, trainer_.leases()->Done(now()));
  outside_.peer_checkers().OnPublished(snapshot, At(Region::kOutbox).values);
  const worker::Progress totals = Totals();
  // Now and then a trainer has not seen the units in time.
  const bool late = scenario_.ist && units_rng_.Bernoulli(kUnitsMissed);
  const worker::Published published{.averaging = averaging,
                                    .samples = totals.samples,
                                    .step = totals.step,
                                    .units = late ? worker::AveragingId() : units_,
                                    .leases = totals.leases.at};
  if (!filling_rng_.Bernoulli(scenario_.fills)) return Local(published);
  filling_ = Filling{.published = published, .whole = At(Region::kOutbox), .result = {}};
  // Whoever takes a value that is not there yet has this one.
  for (float& value : At(Region::kOutbox).values) value = std::numeric_limits<float>::quiet_NaN();
  for (OriginId& origin : At(Region::kOutbox).origins) origin = 0;
  FillMore();
}

// ---- a snapshot that is copied in parts ---------------------------------------------------------

void PeerNode::FillMore() {
  Filling& filling = *filling_;
  RegionBuffer& outbox = At(Region::kOutbox);
  const size_t size = filling.whole.values.size();
  // None, some, or all of what is left.
  const size_t there = filling.there + filling_rng_.Uniform(size - filling.there + 1);
  for (size_t i = filling.there; i < there; ++i) {
    outbox.values[i] = filling.whole.values[i];
    outbox.origins[i] = filling.whole.origins[i];
  }
  filling.there = there;
  if (there == size) return EndFilling();
  const worker::Published published = filling.published;
  if (there > 0 && !std::exchange(filling.told, true)) ++in_parts_;
  // A NaN in what is left: the chance is that of a snapshot, which has so many parts on average.
  const auto parts = static_cast<double>(std::bit_width(size));
  if (filling_rng_.Bernoulli(trainer_.refuse() / parts)) {
    filling_.reset();
    trainer_.OnRelease(published.averaging);
    return Local(worker::PublishRefused{published.averaging});
  }
  const uint64_t said = Planted(ChaosPlant::kSaysMore) ? size : there;
  // However long steps are: a member that is filled gives a copy up that stands still for a second.
  constexpr Duration kMost = Milliseconds(80);
  const Duration part = std::min(scenario_.trainer.step_time, kMost) * filling_rng_.UniformDouble();
  DoAfter(part, [this, averaging = published.averaging] {
    if (filling_ && filling_->published.averaging == averaging) FillMore();
  });
  Local(worker::Filled{published, said});
}

void PeerNode::EndFilling() {
  const Filling filling = *std::exchange(filling_, std::nullopt);
  Local(filling.published);
  if (filling.result)
    trainer_.OnDeliver(filling.published.averaging, At(Region::kOutbox), *filling.result);
}

// Of a trainer that is held: no snapshot that any averaging has.
void PeerNode::GiveFirst(worker::AveragingId averaging) {
  At(Region::kOutbox).values = trainer_.parameters();
  Local(worker::Published{.averaging = averaging});
}

void PeerNode::Wake(const worker::WakeAt& marks) {
  // Only the newest marks ring.
  const uint64_t serial = ++wake_serial_;
  const Time when = trainer_.Passes(now(), marks.steps, marks.samples);
  if (when.infinite()) return;
  queue().At(when, [this, serial, marks] {
    if (serial != wake_serial_) return;
    const worker::Progress totals = Totals();
    const bool passed = (marks.steps > 0 && totals.step >= marks.steps) ||
                        (marks.samples > 0 && totals.samples >= marks.samples);
    if (passed || trainer_.leases() == nullptr) return Local(totals);
    Wake(marks);
  });
}

void PeerNode::GiveResult(worker::AveragingId ticket, Region region) {
  if (filling_ && filling_->published.averaging == ticket) {
    filling_->result = At(region);
    return;
  }
  trainer_.OnDeliver(ticket, At(Region::kOutbox), At(region));
}

void PeerNode::ReleaseSnapshot(worker::AveragingId ticket) {
  ++request_serial_;
  asked_while_held_.reset();
  trainer_.OnRelease(ticket);
}

// ---- what the checkers see, and planted faults -------------------------------------------------

void PeerNode::Execute(const worker::Action& action) {
  if (scenario_.graph && !SeeMixing(action)) return;
  if (scenario_.one_round) SeeTurn(action);
  if (const auto* open = std::get_if<worker::OpenBuffers>(&action)) {
    SeeOpen(*open);
    // The checkers are told what the inputs are to be, of a snapshot that is still copied, too.
    const bool in_parts = open->from == Region::kOutbox && filling_;
    const RegionBuffer there = At(Region::kOutbox);
    if (in_parts) WriteOver(At(Region::kOutbox), filling_->whole);
    ActionHost::Execute(action);
    if (in_parts) WriteOver(At(Region::kOutbox), there);
    // When the region is used, the checkers are told of the round that filled it (SeeUsed).
    made_by_.insert_or_assign(open->to, chunks().Of(open->round));
    return;
  }
  // The others (kMoveBase) move this trainer alone, and are no step of the job.
  if (const auto* kernel = std::get_if<worker::RunKernel>(&action);
      kernel != nullptr && (kernel->kernel == worker::MixKernel::kOuterStep ||
                            kernel->kernel == worker::MixKernel::kOuterBegin ||
                            kernel->kernel == worker::MixKernel::kOuterChange))
    return SeeStep(*kernel);
  if (const auto* moved = std::get_if<worker::MoveTrainer>(&action))
    outside_.outer_checkers().OnFetched(index(), moved->averaging, OuterState());
  if (std::holds_alternative<worker::OfferState>(action))
    outside_.first_checkers().OnOffered(index(), At(Region::kInboxA).values);
  // A stand-in uses its last result when it speaks for another.
  if (const auto* speak = std::get_if<worker::SpeakChunk>(&action)) SeeUsed(speak->region);
  if (const auto* deliver = std::get_if<worker::Deliver>(&action)) {
    SeeDelivery(*deliver);
    if (Planted(ChaosPlant::kDeliverTwice)) {
      ActionHost::Execute(action);
      SeeDelivery(*deliver);
    }
  }
  if (const auto* send = std::get_if<worker::Send>(&action);
      send != nullptr && Planted(ChaosPlant::kCutShort)) {
    worker::Send cut = *send;
    cut.body.pop_back();
    return ActionHost::Execute(cut);
  }
  const auto* chunk = std::get_if<worker::Chunk>(&action);
  const bool input = chunk != nullptr && std::holds_alternative<worker::SendInput>(chunk->action);
  const int times = input && Planted(ChaosPlant::kResendAll) ? 4 : 1;
  for (int i = 0; i < times; ++i) ActionHost::Execute(action);
}

void PeerNode::SeeOpen(const worker::OpenBuffers& open) {
  // Its round may be over, and the peer in another lineage, before the result is seen here.
  if (scenario_.wire == worker::WireFormat::kInt8)
    if (const auto view = Summarize().view) lineage_ = view->lineage;
  if (open.chunks.size() == 1 && open.chunks.front().count == 0) return SeeCounting(open);
  if (open.from != Region::kOutbox) return SeeUsed(open.from);
  if (snapshot_) outside_.peer_checkers().OnWeighed(*snapshot_, open.weight);
  if (snapshot_) outside_.lease_checkers().OnWeighed(*snapshot_, open.weight);
  if (Planted(ChaosPlant::kEarlyPublish))
    trainer_.Publish({}, *snapshot_, outside_.origins().Of(*snapshot_), At(Region::kOutbox));
}

// A round's output is used: it counts as applied.
void PeerNode::SeeUsed(Region region) {
  const auto made = made_by_.find(region);
  if (made == made_by_.end()) return;
  std::vector<Bytes> slots;
  const ChunkHost<float>::Opened& opened = made->second;
  for (worker::ChunkIndex chunk; chunk.value() < opened.chunks.size(); ++chunk)
    slots.push_back(PackElements(At(region), opened.ElementsOf(chunk), opened.wire).wire);
  outside_.round_checkers().OnUsed(index(), made->second.instance, slots);
}

// The mean is used, and is void for the checkers of rounds by no means: its round serves it on.
void PeerNode::SeeStep(const worker::RunKernel& kernel) {
  SeeUsed(kernel.regions[1]);
  if (Planted(ChaosPlant::kUncoveredMoves)) MoveUncovered(kernel.regions[1]);
  mean_ = At(kernel.regions[1]);
  if (Planted(ChaosPlant::kOwnVelocity))
    for (float& value : At(Region::kVelocity).values) value /= 2;
  const OuterCheckers::State before = OuterState();
  const bool change = kernel.kernel == worker::MixKernel::kOuterChange;
  if (change) {
    outside_.outer_checkers().OnChange();
    for (size_t i = 0; i < mean_->values.size(); ++i) mean_->values[i] += before.base[i];
  }
  if (const auto made = made_by_.find(kernel.regions[1]);
      made != made_by_.end() && made->second.subnet != nullptr)
    outside_.subnet_checkers().OnRound(index(), made->second, mean_->values, before.base);
  ActionHost::Execute(kernel);
  if (Planted(ChaosPlant::kWrongStep)) At(Region::kInboxA).values[0] += 0.25F;
  const bool step =
      kernel.kernel == worker::MixKernel::kOuterStep || (change && !kernel.scalars.empty());
  outside_.outer_checkers().OnStep(index(),
                                   step ? OuterCheckers::Kind::kStep : OuterCheckers::Kind::kBegin,
                                   mean_->values, before, OuterState());
}

// The first value that is in no chunk of the round whose output `region` is.
void PeerNode::MoveUncovered(Region region) {
  const auto made = made_by_.find(region);
  if (made == made_by_.end() || made->second.subnet == nullptr) return;
  std::set<uint64_t> covered;
  const std::vector<worker::ChunkSpan>& chunks = made->second.chunks;
  for (worker::ChunkIndex chunk; chunk.value() < chunks.size(); ++chunk)
    for (const uint64_t element : made->second.ElementsOf(chunk)) covered.insert(element);
  uint64_t first = 0;
  while (covered.contains(first)) ++first;
  std::vector<float>& values = At(region).values;
  if (first < values.size()) values[first] += 0.25F;
}

void PeerNode::SeeMean(const worker::Deliver& deliver, const RegionBuffer& mean) {
  if (!scenario_.gives_first) return;
  std::set<SnapshotId> inside;
  for (const OriginId origin : mean.origins)
    for (const SnapshotId snapshot : outside_.origins().In(origin)) inside.insert(snapshot);
  outside_.first_checkers().OnMean(inside);
  outside_.first_checkers().OnAverage(At(deliver.region).values);
}

void PeerNode::SeeDelivery(const worker::Deliver& deliver) {
  if (const auto mean = std::exchange(mean_, std::nullopt)) {
    SeeMean(deliver, *mean);
    outside_.outer_checkers().OnCommitted(index(), deliver.averaging, *mean, OuterState());
    if (scenario_.wire == worker::WireFormat::kInt8)
      outside_.outer_checkers().OnBase(index(), lineage_, deliver.averaging, OuterState());
    if (scenario_.ist)
      outside_.subnet_checkers().OnCommitted(index(), deliver.root, At(Region::kInboxA).values);
    return outside_.OnDeliver(index(), deliver, *mean);
  }
  SeeUsed(deliver.region);
  worker::Deliver told = deliver;
  if (Planted(ChaosPlant::kWrongCount)) told.job_samples += 1;
  if (Planted(ChaosPlant::kWrongValue)) At(deliver.region).values[0] += 0.25F;
  SeeMean(deliver, At(deliver.region));
  outside_.OnDeliver(index(), told, At(deliver.region));
}

void PeerNode::OnActed(const worker::Actions& actions) {
  // A summary takes time: it is asked for where a round may have begun or ended.
  const bool moved = std::any_of(actions.begin(), actions.end(), [](const worker::Action& action) {
    return std::holds_alternative<worker::OpenBuffers>(action) ||
           std::holds_alternative<worker::CloseBuffers>(action) ||
           std::holds_alternative<worker::ReleaseOutbox>(action);
  });
  if (moved) outside_.OnRoundsMoved(index());
  if (Planted(ChaosPlant::kTimersPile))
    for (int i = 0; i < 1'000; ++i) queue().After(Seconds(60), [] {});
}

}  // namespace crowdsurf::simulator
