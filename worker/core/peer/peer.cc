#include "worker/core/peer/peer.h"

#include <algorithm>

#include "base/overloaded.h"
#include "worker/core/round/round_codec.h"

namespace crowdsurf::worker {
namespace {

// A platform's notice gives minutes; the peer trains on until so much is left for leaving.
constexpr Duration kLeaveTime = Seconds(10);

// Nothing that membership has to look at came of a chunk: most of them change their round alone,
// and there are thousands a second. What is due by time comes with the next beat of the round.
bool OnlyChunks(const Actions& actions, size_t from) {
  return std::all_of(actions.begin() + static_cast<ptrdiff_t>(from), actions.end(),
                     [](const Action& action) { return std::holds_alternative<Chunk>(action); });
}

}  // namespace

Peer::Peer(PeerConfig config, Rng rng, Logger log, MetricRegistry& metrics)
    : config_(std::move(config)),
      log_(log.For("peer")),
      metrics_(metrics),
      roster_(config_, metrics_),
      averaging_(config_, metrics_, log, rng.Fork("averaging")),
      membership_(config_, metrics_, log, rng.Fork("membership"), {roster_, averaging_}) {}

void Peer::Start(Time now, Actions& out) {
  roster_.Start(out);
  Settle(now, out);
}

void Peer::OnMessage(Time now, const PeerId& from, ByteView body, Actions& out) {
  if (from == config_.id) return metrics_.RefuseMessage(MessageRefusal::kOwn);
  const auto message = DecodeMessage(body);
  if (!message) return metrics_.RefuseMessage(MessageRefusal::kGarbled);
  body_bytes_ = body.size();
  // Any message is a sign of life, whatever becomes of it.
  membership_.OnHeard(now, from);
  averaging_.rounds().OnHeard(now, from);
  Dispatch(now, from, *message, out);
  Settle(now, out);
}

template <class M, class F>
void Peer::InView(Time now, const PeerId& from, const M& message, F&& deliver, Actions& out) {
  if constexpr (std::is_same_v<M, message::RoundFrame>) {
    const auto& seating = membership_.seating();
    const bool present = seating && seating->hash() == message.view;
    // A round of another view that is still served or witnessed here.
    if (!present && averaging_.rounds().Serves(message)) return deliver();
  }
  if (membership_.IsOurs(now, from, message.view, out)) return deliver();
  if (membership_.seating() && membership_.seating()->hash() == message.view) {
    // Its cell is vacated. It is a member of the averagings before that, and a witness of the view:
    // a round that heard it, but not what it says, would take it for alive and wait for its word.
    if constexpr (std::is_same_v<M, message::RoundFrame>)
      if (averaging_.HasBegun(message.averaging)) deliver();
    return;
  }
  if constexpr (std::is_same_v<M, message::RoundFrame>) {
    if (IsBeat(message.frame)) return;  // of use now or never
    // A peer that never was in that view declines nothing: a BYE counts as a member's sign of life.
    if (membership_.HasLeft(message.view) && averaging_.rounds().Declines(from, message, out))
      return;
  }
  // Of a view that this peer may be about to enter: kept, and handled then (Settle).
  early_.push_back({from, message.view, message, body_bytes_});
  early_bytes_ += body_bytes_;
  // Anybody may name a view that never comes, so the oldest make room.
  while (early_.size() > kMaxEarly || early_bytes_ > kMaxEarlyBytes) {
    early_bytes_ -= early_.front().bytes;
    early_.pop_front();
    metrics_.RefuseMessage(MessageRefusal::kOtherView);
  }
}

void Peer::Dispatch(Time now, const PeerId& from, const Message& message, Actions& out) {
  std::visit(
      Overloaded{
          [&](const message::RoundFrame& m) {
            InView(
                now, from, m, [&] { averaging_.OnFrame(now, from, m, out); }, out);
          },
          [&](const message::DueFor& m) {
            const auto deliver = [&] {
              averaging_.Learn(m.committed);
              averaging_.OnCommitted(now, from, m.committed, out);
              membership_.CompareSeats(now, from, m.seats, out);
              averaging_.OnDue(now, from, m.averaging, out);
            };
            InView(now, from, m, deliver, out);
          },
          [&](const message::Begin& m) {
            InView(
                now, from, m, [&] { averaging_.OnBegin(now, m.averaging, out); }, out);
          },
          // These name an instance, or look at the view themselves.
          [&](const message::ListInUse& m) { averaging_.OnListInUse(now, m, out); },
          [&](const message::ListAsk& m) { averaging_.rounds().OnListAsk(from, m, out); },
          [&](const message::Pair& m) {
            InView(
                now, from, m, [&] { averaging_.OnPairWord(now, from, m.word, out); }, out);
          },
          [&](const message::Neighbour& m) {
            InView(
                now, from, m, [&] { averaging_.OnEdgeWord(now, from, m.word, out); }, out);
          },
          [&](const message::LeasesWanted& m) {
            InView(
                now, from, m, [&] { averaging_.OnLeasesWanted(now, m.averaging, out); }, out);
          },
          [&](const message::LedgerAsk& m) {
            InView(
                now, from, m, [&] { averaging_.OnLedgerAsk(from, m, out); }, out);
          },
          [&](const message::LedgerNews& m) {
            InView(
                now, from, m, [&] { averaging_.OnLedgerNews(now, from, m, out); }, out);
          },
          [&](const message::CountedAsk& m) { averaging_.OnCountedAsk(from, m, out); },
          [&](const message::CountedAnswer& m) { averaging_.OnCountedAnswer(m); },
          [&](const message::JoinRequest& m) { membership_.OnJoinRequest(now, from, m, out); },
          [&](const message::JoinAnswer& m) { membership_.OnJoinAnswer(now, from, m, out); },
          [&](const message::ViewNews& m) { membership_.OnViewNews(now, from, m, out); },
          [&](const message::ViewAsk& m) { membership_.OnViewAsk(now, from, m, out); },
          [&](const message::ViewVoteAsk& m) { membership_.OnViewVoteAsk(now, from, m, out); },
          [&](const message::ViewVote& m) { membership_.OnViewVote(now, from, m, out); },
          [&](const message::SeatingNews& m) { membership_.OnSeatingNews(now, from, m, out); },
          [&](const message::ViewOpen& m) { membership_.OnViewOpen(now, from, m, out); },
          [&](const message::ViewPromise& m) { membership_.OnViewPromise(now, from, m, out); },
          [&](const message::ViewAccept& m) { membership_.OnViewAccept(now, from, m, out); },
          [&](const message::ViewAccepted& m) { membership_.OnViewAccepted(now, from, m, out); },
          [&](const message::BranchOpen& m) { membership_.OnBranchOpen(now, from, m, out); },
          [&](const message::BranchJoin& m) { membership_.OnBranchJoin(now, from, m, out); },
          [&](const message::BranchView& m) { membership_.OnBranchView(now, from, m, out); },
          [&](const message::BranchHeld& m) { membership_.OnBranchHeld(now, from, m, out); },
          [&](const message::Leaving& m) { membership_.OnLeaving(now, from, m, out); }},
      message);
}

void Peer::OnRecords(Time now, const std::vector<PeerRecord>& records, Actions& out, bool whole) {
  const Roster::News news = roster_.OnRecords(now, records, out, whole);
  for (const PeerId& peer : news.replaced) Lose(now, peer, DownEvidence::kReplaced, out);
  for (const PeerId& peer : news.changed) {
    membership_.OnRecord(now, peer);
    const RosterRecord* record = roster_.Find(peer);
    if (record == nullptr || !membership_.seating()) continue;
    // A record of another view says nothing about this one's averagings.
    if (record->view != membership_.seating()->hash()) continue;
    // In jobs above kTellEverybody members only the records tell everybody who is due.
    averaging_.OnCommitted(now, peer, record->committed, out);
    if (!record->due.is_zero()) averaging_.OnDue(now, peer, record->due, out);
  }
  Settle(now, out);
}

void Peer::OnPeerDown(Time now, const PeerId& peer, DownEvidence evidence, Actions& out) {
  if (peer == config_.id) return metrics_.RefuseMessage(MessageRefusal::kOwn);
  Lose(now, peer, evidence, out);
  Settle(now, out);
}

void Peer::Lose(Time now, const PeerId& peer, DownEvidence evidence, Actions& out) {
  membership_.OnPeerDown(now, peer, evidence, out);
  averaging_.OnPeerDown(now, peer,
                        IsDead(evidence) ? SuspicionCause::kReset : SuspicionCause::kSilence, out);
}

void Peer::OnRenewed(Time now, const PeerId& peer, Actions& out) {
  averaging_.OnRenewed(now, peer, out);
  Settle(now, out);
}

bool Peer::OnChunk(Time now, const ChunkArrived& chunk, Actions& out) {
  const bool was_down = membership_.down().contains(chunk.from);
  membership_.OnHeard(now, chunk.from);
  averaging_.rounds().OnHeard(now, chunk.from);
  const size_t before = out.size();
  const bool keep = averaging_.OnChunk(now, chunk, out);
  if (was_down || !OnlyChunks(out, before)) Settle(now, out);
  return keep;
}

void Peer::OnFolded(Time now, const FoldedChunk& chunk, Actions& out) {
  const size_t before = out.size();
  averaging_.OnFolded(now, chunk, out);
  if (!OnlyChunks(out, before)) Settle(now, out);
}

void Peer::OnLocal(Time now, const LocalEvent& event, Actions& out) {
  std::visit(
      Overloaded{[&](const TrainerRegistered& e) { membership_.OnTrainer(now, e); },
                 [&](const TrainerGone&) { membership_.OnTrainerGone(now, out); },
                 [&](const Published& e) { averaging_.OnPublished(now, e, out); },
                 [&](const Filled& e) { averaging_.OnFilled(now, e, out); },
                 [&](const PublishRefused& e) { averaging_.OnPublishRefused(now, e, out); },
                 [&](const Progress& e) { averaging_.OnProgress(now, e, out); },
                 [&](const StateFetched& e) { membership_.OnStateFetched(now, e, out); },
                 [&](const StateHashed& e) { averaging_.OnStateHashed(now, e, out); },
                 [&](const RestoredCheckpoint& e) { membership_.OnRestored(e); },
                 [&](const NoticeGiven& e) { leave_at_ = std::max(now, e.deadline - kLeaveTime); },
                 [&](const LeaveAsked&) { membership_.StartLeaving(now); },
                 [&](const ConfigChanged& e) { membership_.OnConfig(e.config); },
                 [&](const MixSent& e) { averaging_.OnMixSent(now, e, out); },
                 [&](const DataDeclared& e) { averaging_.OnDataDeclared(now, e, out); }},
      event);
  Settle(now, out);
}

void Peer::OnMixChunk(Time now, const MixArrived& chunk, Actions& out) {
  membership_.OnHeard(now, chunk.from);
  averaging_.rounds().OnHeard(now, chunk.from);
  averaging_.OnMixChunk(now, chunk, out);
  Settle(now, out);
}

void Peer::OnTimer(Time now, Actions& out) {
  roster_.TakeExpired(now);  // Membership looks at who has no record any more
  averaging_.OnTimer(now, out);
  Settle(now, out);
}

Time Peer::NextDeadline() const {
  if (membership_.left()) return Time::Infinite();
  Time next =
      std::min({roster_.NextDeadline(), averaging_.NextDeadline(), membership_.NextDeadline()});
  if (!leave_at_.unset() && !membership_.asked_to_leave()) next = std::min(next, leave_at_);
  return next;
}

void Peer::Settle(Time now, Actions& out) {
  if (!leave_at_.unset() && now >= leave_at_) membership_.StartLeaving(now);
  // Every input ends here: membership looks at what it has changed.
  const bool before = membership_.left();
  membership_.Settle(now, out);
  const ViewHash view = membership_.seating() ? membership_.seating()->hash() : ViewHash();
  // A view was entered: what came early for it is handled now, in the order it came.
  if (view != replayed_) {
    replayed_ = view;
    std::deque<Early> waiting = std::exchange(early_, {});
    early_bytes_ = 0;
    for (Early& early : waiting) {
      // InView may keep the message again, and counts its bytes.
      body_bytes_ = early.bytes;
      if (early.view == view) {
        Dispatch(now, early.from, early.message, out);
      } else {
        early_bytes_ += early.bytes;
        early_.push_back(std::move(early));
      }
    }
    membership_.Settle(now, out);
  }
  averaging_.TellTrainer(out);
  if (before) return;  // gone: the record says so and expires
  // Without a view the record is renewed as in the smallest job.
  const size_t members = membership_.seating() ? membership_.seating()->occupants().size() : 1;
  roster_.Keep(now, Describe(), {members, IsWitness()}, out);
}

bool Peer::IsWitness() const {
  if (!membership_.seated()) return false;
  const auto& witnesses = membership_.seating()->view().witnesses;
  return std::find(witnesses.begin(), witnesses.end(), config_.id) != witnesses.end();
}

RosterRecord Peer::Describe() const {
  RosterRecord record{.contact = {.id = config_.id,
                                  .worker = config_.worker,
                                  .peer_endpoint = config_.peer_endpoint,
                                  .tensor_endpoint = config_.tensor_endpoint},
                      .http_endpoint = config_.http_endpoint,
                      .zone = config_.zone,
                      .member = membership_.Self(),
                      .ready = averaging_.trainer().has_value(),
                      .seated = membership_.seated(),
                      .leaving = membership_.leaving(),
                      .view = {},
                      .epoch = 0,
                      .lineage = membership_.lineage(),
                      .step = averaging_.progress().step,
                      .due = averaging_.due() ? averaging_.next() : AveragingId(),
                      .holds = membership_.holds(),
                      .committed = averaging_.committed()};
  if (record.seated) {
    record.view = membership_.seating()->hash();
    record.epoch = membership_.seating()->view().epoch;
    record.member.cell = *membership_.seating()->CellOf(config_.id);
  }
  return record;
}

}  // namespace crowdsurf::worker
