#include "worker/core/round/round_witness.h"

#include <set>

#include "base/digest.h"

namespace crowdsurf::worker {
namespace {

using Kind = WitnessAnswer::Kind;

FrameBody Denied(const WitnessAnswer& answer, Ballot ballot) {
  if (answer.kind == Kind::kForgotten) return Forgotten{ballot};
  return Refused{answer.record.promised};
}

}  // namespace

std::vector<SendFrame> AnswerAsWitness(WitnessTable& table, const PeerId& from,
                                       const Frame& frame) {
  std::vector<SendFrame> out;
  const RegisterId id = RegisterId::Round(frame.instance);
  WitnessAnswer answer;
  const auto silent = [&answer] {
    return answer.kind == Kind::kLent || answer.kind == Kind::kFull;
  };
  if (const BallotOpen* open = std::get_if<BallotOpen>(&frame.body)) {
    if (open->branch || open->ballot == 0) return out;
    answer = table.OnOpen(id, open->age, open->ballot);
    if (silent()) return out;
    FrameBody body = Promise{open->ballot, answer.record.accepted, answer.record.value};
    if (answer.kind != Kind::kYes) body = Denied(answer, open->ballot);
    out.push_back({from, {frame.instance, std::move(body)}});
  } else if (const Accept* accept = std::get_if<Accept>(&frame.body)) {
    if (accept->ballot == 0) return out;
    answer = table.OnAccept(id, accept->age, accept->ballot, accept->value);
    if (silent()) return out;
    if (answer.kind != Kind::kYes) {
      out.push_back({from, {frame.instance, Denied(answer, accept->ballot)}});
      return out;
    }
    const Accepted accepted{accept->ballot, Sha256(accept->value)};
    std::set<PeerId> learners(accept->learners.begin(), accept->learners.end());
    learners.insert(from);
    for (const PeerId& peer : learners) out.push_back({peer, {frame.instance, accepted}});
  }
  return out;
}

}  // namespace crowdsurf::worker
