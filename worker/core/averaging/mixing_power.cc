// Mixing: PowerGossip's transport.
#include "worker/core/averaging/mixing.h"
#include "worker/core/port/config.h"
#include "worker/core/port/messages.h"
#include "worker/core/power/power_frames.h"

namespace crowdsurf::worker {

void Mixing::RunPower(Time now, const PowerAction& action, Actions& out) {
  out.push_back(action);
  if (const auto* use = std::get_if<UsePowerEdges>(&action)) {
    power_.Reset(*use, static_cast<uint32_t>(config_.chunk_elements));
    uses_power_ = true;
  } else if (std::holds_alternative<ProjectPower>(action)) {  // the frames lie there: they leave
    PowerExchange::Out said;
    power_.Begin(now, said);
    Run(now, said, out);
  }
}

// After whatever may have ended the step.
void Mixing::Run(Time now, const PowerExchange::Out& said, Actions& out) {
  for (const PowerExchange::Out::Say& say : said.says)
    out.push_back(Send{say.to, EncodeMessage(message::Neighbour{view_, say.word})});
  for (const PowerExchange::Out::SendFrame& send : said.sends)
    out.push_back(MixSend{.to = send.to,
                          .tag = PowerFrames::TagOf(send.step),
                          .sequence = send.step,
                          .chunks = send.chunks});
  if (auto peers = power_.TakeDone()) Tell(now, FramesHere{*std::move(peers)}, out);
  Count();
}

void Mixing::OnEdgeWord(Time now, const PeerId& from, const EdgeWord& word, Actions& out) {
  if (!uses_power_) return;
  PowerExchange::Out said;
  power_.OnWord(now, from, word, said);
  Run(now, said, out);
}

void Mixing::OnFrameChunk(Time now, const MixArrived& chunk, Actions& out) {
  power_.OnChunk(now, chunk);
  Run(now, PowerExchange::Out(), out);
}

void Mixing::OnNeighbourDown(Time now, const PeerId& peer, Actions& out) {
  if (!uses_power_) return;
  power_.OnPeerDown(peer);
  Run(now, PowerExchange::Out(), out);
}

// The neighbours end the step too, in this view or at its end: what one end had left out would be
// at the other end alone.
void Mixing::EndFrames(Time now, Actions& out) {
  if (!uses_power_) return;
  if (auto peers = power_.TakeLast()) Tell(now, FramesHere{*std::move(peers), true}, out);
}

void Mixing::OnFramesTimer(Time now, Actions& out) {
  if (!uses_power_) return;
  PowerExchange::Out said;
  power_.OnTimer(now, said);
  Run(now, said, out);
}

}  // namespace crowdsurf::worker
