// Mixing: the transport of exchanges in pairs.
#include <utility>

#include "worker/core/averaging/mixing.h"
#include "worker/core/port/messages.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {
namespace {

// A latency at the bound would else be said again and again.
constexpr double kWorthSaying = 0.9;

}  // namespace

void Mixing::Drain() {
  draining_ = true;
  pairs_.Drain();
}

bool Mixing::RunPairs(Time now, const StrategyAction& action, Actions& out) {
  PairExchange::Out said;
  if (const auto* push = std::get_if<PushPair>(&action)) {
    pairs_.Push(push->peer);
  } else if (std::holds_alternative<OpenPairs>(action)) {
    pairs_.Open(now, said);
  } else if (std::holds_alternative<ExchangePairs>(action)) {
    ExchangeWhole(now, out);
    pairs_.Start(now, said);
  } else if (const auto* rate = std::get_if<TellPairRate>(&action)) {
    SayPairRate(rate->share);
    pairs_.SetRestraint(rate->restraint);
  } else {
    return false;
  }
  Run(now, said, out);
  return true;
}

// What neighbours have pushed first, so that what is pushed to others has it.
void Mixing::ExchangeWhole(Time now, Actions& out) {
  while (const auto region = pairs_.TakeWhole()) {
    Tell(now, PairArrived{*region, pairs_.RestraintOf(*region)}, out);
    PairExchange::Out said;
    pairs_.Reply(now, *region, said);
    Run(now, said, out);
  }
}

void Mixing::SayPairRate(double share) {
  metrics_.mixing.rate_share->Set(share);
  const bool slowed = share < (slowed_ ? 1 : kWorthSaying);
  if (slowed == std::exchange(slowed_, slowed)) return;
  if (slowed)
    log_.Warning(
        "exchanges come more rarely than asked for: messages take longer than the interval",
        {{"share", share}});
  else
    log_.Info("exchanges come as often as asked for again", {{"share", share}});
}

void Mixing::Run(Time now, const PairExchange::Out& said, Actions& out) {
  // A reply is applied before what it made room for is sent.
  if (said.replied)
    Tell(now, PairReplied{said.replied->region, said.replied->took, said.replied->restraint}, out);
  for (const PairExchange::Say& say : said.says)
    out.push_back(Send{say.to, EncodeMessage(message::Pair{view_, say.word})});
  for (const PairExchange::SendModel& send : said.sends)
    out.push_back(
        MixSend{.to = send.to, .tag = send.tag, .sequence = send.number, .chunks = send.chunks});
  if (said.whole) Tell(now, PairWaits{}, out);
  Count();
}

void Mixing::OnWord(Time now, const PeerId& from, const PairWord& word, Actions& out) {
  if (!uses_pairs_) return;
  PairExchange::Out said;
  pairs_.OnWord(now, from, word, said);
  Run(now, said, out);
}

}  // namespace crowdsurf::worker
