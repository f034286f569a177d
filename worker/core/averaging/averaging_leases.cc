// The leases' way through averagings: what is claimed, committed, and asked for (averaging.h).
#include <algorithm>
#include <utility>

#include "worker/core/averaging/averaging.h"
#include "worker/core/port/config.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {
namespace {

// Between two averagings that somebody waits for: a few steps, and little beside an interval.
constexpr Duration kHurryPause = Milliseconds(50);

}  // namespace

// ---- the trainer

void Averaging::OnDataDeclared(Time now, const DataDeclared& declared, Actions& out) {
  leases_.OnDeclared(declared.spec);
  if (seated_) DoubtLedger(now, out);
  CheckDue(now, out);
}

void Averaging::TellTrainer(Actions& out) {
  AnswerLedgerAsks(out);
  if (auto granted = leases_.TakeNews(); granted && trainer_)
    out.push_back(GrantLeases{*std::move(granted)});
}

bool Averaging::HandIn(Time now, Actions& out) {
  if (!Ready() || !leases_.active()) return false;
  leases_.Close();
  if (!leases_.hands_in()) return false;
  CheckDue(now, out);
  return true;
}

// ---- when

bool Averaging::WantsOneAtOnce() const { return leases_.starving() || leases_.hands_in(); }

std::optional<Time> Averaging::HurryAt() const {
  if (!WantsOneAtOnce() && hurried_ < next_) return std::nullopt;
  return mark_.time + kHurryPause;
}

void Averaging::OnLeasesWanted(Time now, AveragingId averaging, Actions& out) {
  if (averaging > next() + 1) return;  // no member can be due for that yet
  hurried_ = std::max(hurried_, averaging);
  CheckDue(now, out);
}

// ---- what an averaging has decided

// The trainer's change is not in the mean that was decided, and it has trained leases for it.
bool Averaging::KeepsChange() const { return leases_.brings() && !leases_.discards(); }

// So many claim that there was no room for this member's: it claims as much and more in the next.
bool Averaging::IsCrowdedOut(const ClaimSet& decided) const {
  const auto own = [&](const LeaseClaim& claim) { return claim.peer == config_.id; };
  return decided.claims.size() == kMaxClaims && std::ranges::none_of(decided.claims, own);
}

void Averaging::CommitLeases(AveragingId averaging, Actions& out) {
  // With `rounds: One` a count has put nothing in the place of what is to be discarded.
  if (in_mean_ && !(turns_.taken() && Counting(averaging))) leases_.OnDelivered();
  if (in_mean_ && IsCrowdedOut(stake_.claims)) metrics_.leases_crowded->Add();
  if (!leases_.OnDecided(averaging, stake_.claims, seated_then_)) AskForLedgers(out);
  CountLeases();
}

// For a checkpoint: of that averaging alone.
Bytes Averaging::LedgerOf(AveragingId averaging) const {
  const LeaseLedger& ledger = leases_.ledger();
  return ledger.mark().averaging == averaging ? ledger.Encode() : Bytes();
}

void Averaging::CountLeases() {
  const LeaseLedger::Totals& totals = leases_.ledger().totals();
  metrics_.leases_committed->Set(static_cast<double>(totals.committed));
  metrics_.leases_returned->Set(static_cast<double>(totals.returned));
  metrics_.leases_void->Set(static_cast<double>(totals.void_claims));
}

// ---- the ledger of others

bool Averaging::AskForLedgers(Actions& out) {
  std::vector<PeerId> members;
  for (const PeerId& peer : Neighbours())
    if (!down_.contains(peer)) members.push_back(peer);
  const message::LedgerAsk ask{
      .view = seating_.hash(), .next = next(), .mark = leases_.ledger().mark()};
  const Bytes body = EncodeMessage(ask);
  for (const PeerId& peer : members) out.push_back(Send{peer, body});
  return ledger_sync_.Ask(members);
}

void Averaging::DoubtLedger(Time now, Actions& out) {
  if (AskForLedgers(out)) Resume(now, out);
}

void Averaging::OnLedgerAsk(const PeerId& from, const message::LedgerAsk& ask, Actions& out) {
  // What is to come here, or open, may still be decided.
  const bool open = (idle() ? next_ : number_) < ask.next;
  if (open && ledger_sync_.Keep(from, ask)) return;
  const LeaseLedger& ledger = leases_.ledger();
  const bool newer = ledger.mark() > ask.mark;
  out.push_back(Send{from, EncodeMessage(message::LedgerNews{
                               .view = ask.view, .ledger = newer ? ledger.Encode() : Bytes()})});
}

void Averaging::AnswerLedgerAsks(Actions& out) {
  for (const auto& [peer, ask] : ledger_sync_.TakeKept()) OnLedgerAsk(peer, ask, out);
}

void Averaging::OnLedgerNews(Time now, const PeerId& from, const message::LedgerNews& news,
                             Actions& out) {
  if (!news.ledger.empty()) {
    auto ledger = LeaseLedger::Decode(news.ledger);
    if (!ledger) return metrics_.RefuseMessage(MessageRefusal::kGarbled);
    leases_.OnLedger(*std::move(ledger));
    CountLeases();
  }
  if (ledger_sync_.OnAnswer(from)) Resume(now, out);
}

void Averaging::OnRestoredLedger(const Bytes& bytes) {
  auto ledger = LeaseLedger::Decode(bytes);
  if (!ledger) return log_.Warning("the checkpoint's leases are garbled: epochs begin anew", {});
  ledger_restored_ = leases_.OnLedger(*std::move(ledger));
}

// The one of the first view's maker counts. A member that finds a job takes the ledger that is
// there, however old: what it has restored may be of a job before.
void Averaging::SettleRestoredLedger() {
  const bool restored = std::exchange(ledger_restored_, false);
  if (restored && seating_.occupants().size() > 1) leases_.OnLineage();
}

}  // namespace crowdsurf::worker
