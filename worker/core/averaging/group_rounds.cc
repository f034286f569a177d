#include "worker/core/averaging/group_rounds.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/digest.h"
#include "worker/core/port/config.h"
#include "worker/core/port/messages.h"
#include "worker/core/port/peer_metrics.h"
#include "worker/core/round/round_codec.h"
#include "worker/core/subnet/subnet_round.h"

namespace crowdsurf::worker {
namespace {

constexpr uint32_t kMaxRounds = 32;  // of an averaging: an axis has two members at least

GroupRounds::Ended NeverOpened(const GroupRounds::Opening& opening, const InstanceId& instance) {
  return {.averaging = opening.averaging,
          .round = opening.round,
          .axis = opening.axis,
          .over = RoundOver{Outcome::kKept, 0, {}, Digest(), {}, {}},
          .counted = false,
          .flowed = false,
          .instance = instance,
          .group = {}};
}

// Another one in each round, and the same in all of its groups: of equal inputs they make equal
// results.
uint32_t DitherKey(const GroupRounds::Opening& opening) {
  return static_cast<uint32_t>(opening.averaging.value()) * kMaxRounds + opening.round;
}

// Those, from the first on, that lie within the first `elements` values. Chunks ascend.
size_t WholeChunks(const std::vector<ChunkSpan>& chunks, uint64_t elements) {
  const auto beyond = std::partition_point(
      chunks.begin(), chunks.end(),
      [&](const ChunkSpan& chunk) { return chunk.begin + chunk.count <= elements; });
  return static_cast<size_t>(beyond - chunks.begin());
}

// Stand-ins, too, of which none may be needed yet.
void SuspectThose(Time now, const std::set<PeerId>& down, Round& round, RoundPacer& pacer,
                  RoundActions& out) {
  for (const PeerId& peer : down) {
    if (!round.Involves(peer)) continue;
    round.OnSuspect(peer, SuspicionCause::kReset, out);
    pacer.OnDown(now, peer);
  }
}

}  // namespace

GroupRounds::GroupRounds(const PeerConfig& config, PeerMetrics& metrics, Logger log)
    : config_(config),
      metrics_(metrics),
      log_(log.For("round")),
      times_(PacerConfig{.min_silence = config.min_silence, .max_silence = config.max_silence}) {}

void GroupRounds::CloseAll(Time now, ParentEnd parent, Actions& out) {
  while (!instances_.empty()) {
    const auto at = instances_.begin();
    if (!at->second.round.over()) {
      RoundActions actions;
      at->second.round.OnLeave(actions);
      at->second.broke_up = parent == ParentEnd::kBrokeUp;
      Perform(now, at->second, actions, out);
    }
    Close(now, at, out);
  }
}

void GroupRounds::OnView(Time now, const View& view, const ViewHash& hash, ParentEnd parent,
                         Actions& out) {
  const bool successor =
      view.parent == view_.hash && parent == ParentEnd::kOrderly && !view_.hash.none();
  CHECK(!open() || !successor);
  if (successor) {
    previous_ = view_;
    table_.OnEpoch(view.epoch);
  } else {
    ended_.clear();
    CloseAll(now, parent, out);
    // Nothing of the old lineage is answered any more, so its promises cannot be broken; epochs of
    // the new lineage may be smaller. The same view again, under another seat: promises stand, and
    // members that are in a round of its parent yet need an answer.
    if (hash != view_.hash) {
      previous_ = KnownView();
      table_ = WitnessTable();
    }
  }
  speaking_.clear();
  calls_.clear();
  current_.reset();
  suspended_.reset();
  differing_.clear();
  view_ = {.hash = hash, .epoch = view.epoch, .witnesses = view.witnesses};
  wire_ = WholeFormat(view.config);
  AnswerPassed(now, out);
}

bool GroupRounds::Serves(const message::RoundFrame& frame) const {
  if (frame.view == view_.hash || frame.view == previous_.hash) return true;
  // An instance of an older view is served until it is closed.
  const auto instance = PeekInstance(frame.frame);
  return instance && instances_.contains(*instance);
}

GroupQuestion GroupRounds::QuestionOf(const Opening& opening) const {
  return {.job = config_.job,
          .averaging = opening.averaging,
          .round = opening.round,
          .axis = opening.axis,
          .stand_ins = opening.stand_ins,
          .elements = opening.counting ? 0 : vector_.elements,
          .chunk_elements = static_cast<uint32_t>(config_.chunk_elements),
          .block = opening.changes ? static_cast<uint32_t>(kInt8Block) : 1,
          .covered = opening.subnet == nullptr ? nullptr : &opening.subnet->chunks};
}

void GroupRounds::OpenRound(Time now, const Opening& opening, const Seating& seating,
                            const std::set<PeerId>& down, Actions& out) {
  CHECK(!open());
  const auto cell = seating.CellOf(config_.id);
  CHECK(cell.has_value());
  CHECK(opening.mask.whole() || (opening.round == 0 && opening.mask.end() <= vector_.elements));
  CloseWriters(now, opening.to, opening.counting, out);
  current_ = Current{.opening = opening, .seating = seating, .cell = *cell, .lists = {}};
  OpenInstance(now, down, out);
  OpenDuties(out);
  ReplayEarly(now, out);
}

void GroupRounds::OpenInstance(Time now, const std::set<PeerId>& down, Actions& out) {
  const Opening& opening = current_->opening;
  GroupPlan plan = PlanOf(current_->seating, current_->cell, QuestionOf(opening));
  const auto self = plan.RankOf(config_.id);
  CHECK(self.has_value());
  auto promised = table_.Lend(RegisterId::Round(plan.instance), plan.age);
  if (!promised) {  // so long ago that its register was pruned: it must not be opened again
    ended_.push_back(NeverOpened(opening, plan.instance));
    return;
  }
  RoundSpec spec{.instance = plan.instance,
                 .age = plan.age,
                 .self = *self,
                 .cells = plan.cells,
                 .witnesses = view_.witnesses,
                 .chunks = plan.chunks,
                 .coverers = plan.coverers,
                 .one_base = opening.one_base,
                 .leaves_when_behind = opening.leaves_when_behind,
                 .stake = opening.stake,
                 .schema = vector_.schema,
                 .window_chunks = config_.window_chunks,
                 .max_window_chunks = MaxWindow(plan.cells.size(), opening),
                 .promised = std::move(*promised),
                 .again = suspended_ == plan.instance,
                 .filled = WholeChunks(plan.chunks, opening.filled)};
  suspended_.reset();
  const RoundHandle handle = ++last_handle_;
  out.push_back(OpenBuffers{.round = handle,
                            .instance = plan.instance,
                            .self = *self,
                            .chunks = plan.chunks,
                            .from = opening.from,
                            .to = opening.to,
                            .wire = WireOf(opening),
                            .weight = opening.stake.weight,
                            .mask = opening.mask,
                            .subnet = opening.subnet,
                            .from_base = opening.changes && opening.from == Region::kOutbox,
                            .with_rest = opening.with_rest && opening.from == Region::kOutbox,
                            .dither = DitherKey(opening)});
  const auto [at, fresh] = instances_.emplace(
      plan.instance,
      Instance{.handle = handle,
               .view = view_.hash,
               .epoch = view_.epoch,
               .opening = opening,
               .group = plan.group,
               .cell = current_->cell,
               .round = Round(std::move(spec)),
               .pacer = RoundPacer(now, times_, opening.round, BegunAt(now, plan.instance)),
               .opened = now,
               .seating = current_->seating,
               .pinned = false,
               .told_list = {},
               .counted = {}});
  CHECK(fresh);
  log_.Debug("round opened", {{"averaging", opening.averaging.value()},
                              {"round", opening.round},
                              {"instance", plan.instance.brief()},
                              {"rank", *self},
                              {"ranks", plan.cells.size()}});
  Instance& instance = at->second;
  RoundActions actions;
  SetWindows(instance, actions);
  instance.round.Start(actions);
  SuspectThose(now, down, instance.round, instance.pacer, actions);
  instance.pacer.Observe(now, instance.round);
  Perform(now, instance, actions, out);
}

void GroupRounds::Replan(Time now, const Seating& seating, const std::set<PeerId>& down,
                         Actions& out) {
  if (!current_ || seating.MinorHash() == current_->seating.MinorHash()) return;
  const auto at = std::find_if(instances_.begin(), instances_.end(),
                               [](const auto& entry) { return IsPristine(entry.second); });
  if (at == instances_.end() || at->second.pinned) {
    current_->seating = seating;  // for late duties; the round keeps its list
    return;
  }
  const auto cell = seating.CellOf(config_.id);
  // The own seat is gone: membership asks for another. Or it is another one already, after a round
  // in the old one: what this peer holds is its old neighbours' mean, and speaking for the new cell
  // it would count them twice, and those who sat there not at all.
  if (!cell || (current_->opening.round > 0 && *cell != current_->cell)) return LeaveOpen(now, out);
  current_->seating = seating;
  current_->cell = *cell;
  const GroupPlan plan = PlanOf(seating, *cell, QuestionOf(current_->opening));
  if (plan.instance == at->first) return;
  // Nothing was given or taken in the old instance, so it can be forgotten: a member that still
  // waits for us there learns of the seats from our READY in the new one.
  metrics_.lists_differed->Add();
  DropPristine(now, out);
  speaking_.clear();
  OpenInstance(now, down, out);
  OpenDuties(out);
  ReplayEarly(now, out);
}

std::optional<CellIndex> GroupRounds::CellIn(AveragingId averaging) const {
  if (!current_ || current_->opening.averaging != averaging) return std::nullopt;
  return current_->cell;
}

void GroupRounds::Depart(Time now, Actions& out) {
  departing_ = true;
  LeaveOpen(now, out);
  departing_ = false;
}

void GroupRounds::LeaveOpen(Time now, Actions& out) {
  for (auto& [id, instance] : instances_) {
    if (instance.round.over()) continue;
    RoundActions actions;
    instance.round.OnLeave(actions);
    Perform(now, instance, actions, out);
  }
}

void GroupRounds::OnOverwritten(Time now, Region region, Actions& out) {
  CloseWriters(now, region, false, out);
  if (current_ && current_->opening.from == region) current_.reset();
}

void GroupRounds::OnSnapshot(Time now, Actions& out) {
  // The outbox is replaced: rounds that read the old snapshot cannot go on.
  for (auto& [id, instance] : instances_) {
    if (instance.round.over() || instance.opening.from != Region::kOutbox) continue;
    RoundActions actions;
    instance.round.OnSitOut(actions);
    Perform(now, instance, actions, out);
  }
}

void GroupRounds::OnFilled(Time now, uint64_t elements, Actions& out) {
  if (current_ && current_->opening.from == Region::kOutbox) current_->opening.filled = elements;
  for (auto& [id, instance] : instances_) {
    if (instance.round.over() || instance.opening.from != Region::kOutbox) continue;
    RoundActions actions;
    instance.round.OnFilled(WholeChunks(instance.round.spec().chunks, elements), actions);
    instance.pacer.Observe(now, instance.round);
    Perform(now, instance, actions, out);
  }
}

void GroupRounds::SendTo(const PeerId& to, const Frame& frame, const message::RoundFrame& like,
                         Actions& out) const {
  message::RoundFrame message = like;
  message.frame = EncodeFrame(frame);
  out.push_back(Send{to, EncodeMessage(message)});
}

message::RoundFrame GroupRounds::Wrapping(const Instance& instance) const {
  return {.view = instance.view,
          .epoch = instance.epoch,
          .averaging = instance.opening.averaging,
          .round = static_cast<uint8_t>(instance.opening.round),
          .group = instance.group,
          .frame = {}};
}

void GroupRounds::Close(Time now, Instances::iterator at, Actions& out) {
  Instance& instance = at->second;
  if (!instance.round.over() && !instance.reported) {
    RoundActions actions;
    instance.round.OnSitOut(actions);
    Perform(now, instance, actions, out);
  }
  // The register outlives the instance: this peer may be a witness of it.
  table_.Retire(RegisterId::Round(at->first), instance.round.Promised());
  out.push_back(CloseBuffers{instance.handle});
  instances_.erase(at);
}

// A count writes weights alone, so it and a round of values leave each other open.
void GroupRounds::CloseWriters(Time now, Region region, bool counting, Actions& out) {
  for (auto at = instances_.begin(); at != instances_.end();) {
    const auto next = std::next(at);
    const Opening& opening = at->second.opening;
    if (opening.to == region && opening.counting == counting) Close(now, at, out);
    at = next;
  }
  std::erase_if(speaking_, [&](const auto& entry) { return entry.second.region == region; });
}

std::set<PeerId> GroupRounds::TakeDiffering() { return std::exchange(differing_, {}); }

bool GroupRounds::open() const {
  return std::any_of(instances_.begin(), instances_.end(),
                     [](const auto& entry) { return !entry.second.round.over(); });
}

bool GroupRounds::pristine() const {
  return std::any_of(instances_.begin(), instances_.end(),
                     [](const auto& entry) { return IsPristine(entry.second); });
}

bool GroupRounds::in_ballot() const {
  return std::any_of(instances_.begin(), instances_.end(), [](const auto& entry) {
    return entry.second.round.phase() == RoundPhase::kBallot;
  });
}

bool GroupRounds::in_branch() const {
  return std::any_of(instances_.begin(), instances_.end(), [this](const auto& entry) {
    return entry.second.view == view_.hash && entry.second.round.branch() != 0;
  });
}

void GroupRounds::Suspend(Time now, Actions& out) {
  for (const auto& [id, instance] : instances_)
    if (IsPristine(instance)) suspended_ = id;
  DropPristine(now, out);
  current_.reset();
}

void GroupRounds::DropPristine(Time now, Actions& out) {
  for (auto at = instances_.begin(); at != instances_.end();) {
    const auto next = std::next(at);
    if (IsPristine(at->second)) {
      // Nothing was given or taken in it, so its end is not reported as an outcome.
      at->second.reported = true;
      Close(now, at, out);
    }
    at = next;
  }
}

}  // namespace crowdsurf::worker
