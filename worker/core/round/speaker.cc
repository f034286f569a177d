#include "worker/core/round/speaker.h"

#include "base/check.h"

namespace crowdsurf::worker {

Speaker::Speaker(SpeakerSpec spec) : spec_(std::move(spec)) {
  CHECK(spec_.rank >= 0 && static_cast<size_t>(spec_.rank) < spec_.cells.size());
  CHECK(IsValid(spec_.stake));
}

void Speaker::Start(SpeakerActions& out) {
  const Speak speak{static_cast<uint8_t>(spec_.rank), spec_.stake, spec_.root};
  for (const RoundCell& cell : spec_.cells)
    if (cell.member) out.push_back(SendFrame{*cell.member, {spec_.instance, speak}});
}

void Speaker::OnFrame(const PeerId& from, const Frame& frame, SpeakerActions& out) {
  const Ask* ask = std::get_if<Ask>(&frame.body);
  bool member = false;
  for (const RoundCell& cell : spec_.cells) member = member || cell.member == from;
  if (ask == nullptr || !member || frame.instance != spec_.instance || ask->rank != spec_.rank) {
    ++refused_;
    return;
  }
  // No chunks: it asks whether this peer speaks at all (Ask).
  if (ask->chunks.empty()) {
    const Speak speak{static_cast<uint8_t>(spec_.rank), spec_.stake, spec_.root};
    out.push_back(SendFrame{from, {spec_.instance, speak}});
    return;
  }
  for (const ChunkIndex chunk : ask->chunks) {
    if (chunk.value() >= spec_.chunks.size()) {
      ++refused_;
      continue;
    }
    out.push_back(SpeakInput{from, spec_.rank, chunk, ask->assigned});
  }
}

void Speaker::Stop(SpeakerActions& out) {
  for (const RoundCell& cell : spec_.cells)
    if (cell.member)
      out.push_back(SendFrame{*cell.member, {spec_.instance, Bye{ByeReason::kCannotSpeak}}});
}

}  // namespace crowdsurf::worker
