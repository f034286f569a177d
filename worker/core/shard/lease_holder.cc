#include "worker/core/shard/lease_holder.h"

#include <algorithm>
#include <utility>

namespace crowdsurf::worker {
namespace {

// Leases are granted by averagings, so a trainer is to hold enough for two of them and some.
// Halved, trainers wait where intervals differ; doubled, a worker that dies takes more out of its
// epoch.
constexpr uint64_t kIntervalsAhead = 3;
constexpr uint64_t kUnitsAtLeast = 4;  // before anything is known of its speed

}  // namespace

// ---- the trainer

void LeaseHolder::OnTrainer(TrainerPast past) {
  LeaveStream();
  declared_ = DataSpec();
  trained_ = snapshot_ = StreamPosition();
  strange_ = past == TrainerPast::kUnknown;
  discarding_ = closed_ = waits_ = false;
}

void LeaseHolder::OnDeclared(const DataSpec& spec) {
  if (strange_) discarding_ = true;
  strange_ = false;
  declared_ = spec;
  news_ = true;
}

void LeaseHolder::OnProgress(const StreamProgress& progress) {
  trained_ = Granted(progress.at);
  waits_ = progress.waits;
}

void LeaseHolder::OnSnapshot(const StreamPosition& position) {
  trained_ = snapshot_ = Granted(position);
}

// A trainer that claims more than it was granted would wait for ever for the rest to be committed.
StreamPosition LeaseHolder::Granted(StreamPosition at) const {
  if (stream_ == 0 || at.stream != stream_) return at;
  const LeaseLedger::Holder* holder = ledger_.Find(self_);
  at.position = std::min(at.position, holder != nullptr ? holder->end() : committed_);
  return at;
}

void LeaseHolder::OnAdopted() {
  LeaveStream();
  discarding_ = false;
}

void LeaseHolder::Discard() {
  LeaveStream();
  discarding_ = true;
}

void LeaseHolder::Close() {
  if (closed_) return;
  closed_ = news_ = true;
  waits_ = false;  // until it has seen that
}

void LeaseHolder::LeaveStream() {
  stream_ = committed_ = first_claim_ = 0;
  news_ = true;
}

std::optional<LeasesGranted> LeaseHolder::TakeNews() {
  if (!std::exchange(news_, false) || declared_.none()) return std::nullopt;
  LeasesGranted granted{
      .stream = stream_, .begin = committed_, .leases = {}, .closed = closed_, .other = {}};
  if (!ledger_.empty() && ledger_.spec() != declared_) granted.other = ledger_.spec();
  const LeaseLedger::Holder* holder = ledger_.Find(self_);
  if (stream_ != 0 && holder != nullptr && !closed_)
    granted.leases.assign(holder->open.begin(), holder->open.end());
  return granted;
}

// One that has used up its leases and does something else meanwhile hurries nobody.
bool LeaseHolder::starving() const {
  if (declared_.none() || closed_ || !waits_) return false;
  if (stream_ == 0) return trained_.stream == 0;
  const LeaseLedger::Holder* holder = ledger_.Find(self_);
  return trained_.stream == stream_ && (holder == nullptr || trained_.position >= holder->end());
}

bool LeaseHolder::brings() const {
  return stream_ != 0 && snapshot_.stream == stream_ && snapshot_.position > committed_;
}

bool LeaseHolder::hands_in() const {
  return closed_ && !declared_.none() && (uncommitted() || !waits_);
}

bool LeaseHolder::uncommitted() const {
  return stream_ != 0 && trained_.stream == stream_ && trained_.position > committed_;
}

// ---- averagings

ClaimSet LeaseHolder::Claims(AveragingId averaging) {
  ClaimSet claims;
  if (!active()) return claims;
  claims.spec = ledger_.empty() ? declared_ : ledger_.spec();
  claims.base = ledger_.mark();
  if (declared_ != claims.spec) return claims;
  LeaseClaim claim{.peer = self_, .trained = {}, .want = 0};
  const bool current = snapshot_.stream == stream_;
  if (stream_ != 0) claim.trained = {stream_, current ? snapshot_.position : committed_};
  // A trainer that has not left a stream that was taken back gets no other one.
  if (!closed_ && (stream_ != 0 || snapshot_.stream == 0)) {
    const LeaseLedger::Holder* holder = ledger_.Find(self_);
    const uint64_t end = stream_ != 0 && holder != nullptr ? holder->end() : 0;
    const uint64_t ahead = end - std::min(end, claim.trained.position);
    // What no average has yet was trained in about an interval.
    const uint64_t used = claim.trained.position - std::min(committed_, claim.trained.position);
    const uint64_t aim = std::max(kIntervalsAhead * used, kUnitsAtLeast * declared_.unit);
    if (aim > ahead)
      claim.want = static_cast<uint32_t>(
          std::min<uint64_t>((aim - ahead + declared_.unit - 1) / declared_.unit, kMaxWant));
    if (stream_ == 0 && first_claim_ == 0) first_claim_ = averaging.value();
  }
  claims.claims.push_back(claim);
  return claims;
}

void LeaseHolder::OnDelivered() {
  // Before the trainer has left the old stream it may train on in it.
  if (discarding_ && snapshot_.stream == 0) discarding_ = false;
}

bool LeaseHolder::OnDecided(AveragingId averaging, const ClaimSet& decided,
                            const std::set<PeerId>& members) {
  if (averaging <= ledger_.mark().averaging) return true;  // another member has told it already
  if (decided.base != ledger_.mark()) return false;
  ledger_.Commit(averaging, decided, members);
  Refresh();
  return true;
}

// ---- the ledger

bool LeaseHolder::OnLedger(LeaseLedger theirs) {
  if (theirs.mark() <= ledger_.mark()) return false;
  ledger_ = std::move(theirs);
  Refresh();
  return true;
}

void LeaseHolder::OnLineage() {
  ledger_ = LeaseLedger();
  LeaveStream();
}

// The ledger has changed: what it means for the own stream.
void LeaseHolder::Refresh() {
  const LeaseLedger::Holder* holder = ledger_.Find(self_);
  if (ledger_.spec() != declared_) news_ = true;
  if (stream_ != 0) {
    news_ = true;
    if (holder != nullptr && holder->stream == stream_) {
      committed_ = holder->position;
      return;
    }
    // Taken back. What is not committed is trained by others.
    discarding_ |= uncommitted();
    return LeaveStream();
  }
  const bool granted = holder != nullptr && first_claim_ != 0 && holder->stream >= first_claim_;
  if (!granted || discarding_) return;
  stream_ = holder->stream;
  committed_ = holder->position;
  news_ = true;
}

}  // namespace crowdsurf::worker
