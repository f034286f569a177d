// ASK and SPEAK in a Round: stand-ins for holes and lost members, and inputs that got lost.
#include <algorithm>
#include <utility>

#include "worker/core/round/round.h"

namespace crowdsurf::worker {

// A hole always; a member once a plan left it out, or is there and it fell silent since.
bool Round::SpokenFor(int rank) const {
  if (fixed_->speakers[static_cast<size_t>(rank)].empty() || rank == self()) return false;
  if (!fixed_->members.Contains(rank)) return true;
  return seen_ > 0 && (!plan_members_.Contains(rank) || !Trusts(rank));
}

// Some speaker may still send inputs of `rank`.
bool Round::SpeakerLeft(int rank) const {
  const auto replies = speaker_replies_.find(static_cast<uint8_t>(rank));
  for (const PeerId& peer : fixed_->speakers[static_cast<size_t>(rank)]) {
    if (Distrusts(peer)) continue;
    if (replies == speaker_replies_.end()) return true;
    const auto reply = replies->second.speaker.find(peer);
    if (reply == replies->second.speaker.end() || reply->second) return true;
  }
  return false;
}

// A live peer that has nothing to say for anybody here; as a witness it is as good as before.
void Round::IgnoreSpeaker(const PeerId& speaker, RoundActions& out) {
  bool known = false;
  for (size_t rank = 0; rank < ranks(); ++rank) {
    if (fixed_->spec.cells[rank].speakers.count(speaker) == 0) continue;
    known = true;
    speaker_replies_[static_cast<uint8_t>(rank)].speaker.insert_or_assign(speaker, false);
  }
  if (!known) return Refuse(FrameRefusal::kStranger);
  ++progress_;
  asked_.EraseSpeaker(speaker);
  AskSpeakers(out);
  TryFoldAll(out);
  TryHave(out);
}

// "Do you speak?" once to all speakers of who is spoken for: everybody needs the stake.
void Round::ContactSpeakers(RoundActions& out) {
  for (int rank = 0; rank < static_cast<int>(ranks()); ++rank) {
    if (!SpokenFor(rank)) continue;
    SpeakerReplies& replies = speaker_replies_[static_cast<uint8_t>(rank)];
    if (replies.greeted) continue;
    replies.greeted = true;
    for (const PeerId& peer : fixed_->speakers[static_cast<size_t>(rank)])
      if (!Distrusts(peer)) Emit(peer, Ask{static_cast<uint8_t>(rank), 0, {}}, out);
  }
}

// ASKs, or their answers, may have been lost.
void Round::ForgetAsks() {
  asked_.Clear();
  for (auto& [rank, replies] : speaker_replies_)
    replies.greeted = replies.speaker.size() == fixed_->speakers[rank].size();
}

// Speaker j of k sends the chunks c with c mod k = j; those of one that fails are spread over the
// others. nullptr: nobody now, or its SPEAK is awaited.
const PeerId* Round::SpeakerOf(int rank, ChunkIndex chunk) const {
  const std::vector<PeerId>& speakers = fixed_->speakers[static_cast<size_t>(rank)];
  const auto replies = speaker_replies_.find(static_cast<uint8_t>(rank));
  if (speakers.empty() || replies == speaker_replies_.end()) return nullptr;
  const std::map<PeerId, bool>& reply = replies->second.speaker;
  const PeerId& first = speakers[chunk.value() % speakers.size()];
  if (!Distrusts(first)) {
    const auto it = reply.find(first);
    if (it == reply.end()) return nullptr;
    if (it->second) return &first;
  }
  std::vector<const PeerId*> good;
  for (const auto& [peer, same] : reply)
    if (same && !Distrusts(peer)) good.push_back(&peer);
  if (good.empty()) return nullptr;
  return good[chunk.value() / speakers.size() % good.size()];
}

void Round::AskSpeakers(RoundActions& out) {
  if (over_ || target_) return;
  std::map<std::pair<PeerId, std::pair<uint8_t, Ballot>>, std::vector<ChunkIndex>> asks;
  for (int r = 0; r < static_cast<int>(ranks()); ++r) {
    if (!SpokenFor(r)) continue;
    const auto rank = static_cast<uint8_t>(r);
    for (const ChunkIndex chunk : pending_) {
      const Gathering& inputs = inputs_[{chunk, assignments_[chunk.value()].assigned}];
      if (!inputs.folding.empty() || (inputs.in | inputs.bad).Contains(r)) continue;
      const Ballot assigned = assignments_[chunk.value()].assigned;
      const AskedInputs::Request* asked = asked_.Find(chunk, rank);
      if (asked != nullptr && asked->assigned == assigned && !Distrusts(asked->speaker)) continue;
      const PeerId* speaker = SpeakerOf(r, chunk);
      if (speaker == nullptr) continue;
      asked_.Add(chunk, rank, {*speaker, assigned});
      asks[{*speaker, {rank, assigned}}].push_back(chunk);
    }
  }
  for (auto& [key, chunks] : asks)
    Emit(key.first, Ask{key.second.first, key.second.second, std::move(chunks)}, out);
}

void Round::OnSpeak(const PeerId& from, const Speak& frame, RoundActions& out) {
  if (over_ || target_) return Refuse(FrameRefusal::kSpeakLate);
  const bool known = frame.rank < ranks() && worker::IsValid(frame.stake) &&
                     fixed_->spec.cells[frame.rank].speakers.count(from) > 0;
  if (!known) return Refuse(FrameRefusal::kSpeakStranger);
  // What STATUS said of stakes holds until the plan that follows from it.
  if (record_.promised > seen_ && stakes_.count(frame.rank) == 0) {
    const auto same = [&](const auto& late) { return late.first == from && late.second == frame; };
    if (std::any_of(late_speaks_.begin(), late_speaks_.end(), same) ||
        late_speaks_.size() >= ranks() * kMaxLateSpeaks)
      return Refuse(FrameRefusal::kSpeakTwice);
    late_speaks_.emplace_back(from, frame);
    return;
  }
  TakeSpeak(from, frame);
  AskSpeakers(out);
  TryFoldAll(out);
  TryHave(out);
}

void Round::TakeSpeak(const PeerId& from, const Speak& frame) {
  SpeakerReplies& replies = speaker_replies_[frame.rank];
  // Vector and stake travel together: a speaker with another stake than the one that is known
  // holds another value.
  const auto stake = stakes_.find(frame.rank);
  const bool known = stake == stakes_.end() || stake->second == frame.stake;
  const bool fits = known && SameBase(frame.stake);
  if (fits && !replies.root) replies.root = frame.root;
  const bool same = fits && *replies.root == frame.root;
  if (!replies.speaker.emplace(from, same).second) return Refuse(FrameRefusal::kSpeakTwice);
  if (!same) Refuse(FrameRefusal::kSpeakRoot);
  if (same) stakes_.emplace(frame.rank, frame.stake);
}

void Round::HearLateSpeaks() {
  for (const auto& [from, frame] : std::exchange(late_speaks_, {})) TakeSpeak(from, frame);
}

// ---- members ----------------------------------------------------------------------------------
void Round::OnAsk(const PeerId& from, const Ask& frame, RoundActions& out) {
  const int rank = RankOf(from);
  if (rank < 0 || rank == self() || frame.rank != self()) return Refuse(FrameRefusal::kAskStranger);
  if (over_ || target_) return Refuse(FrameRefusal::kAskLate);
  if (frame.chunks.empty()) return Emit(from, OwnReady(), out);  // its READY was lost there
  // What is asked for first the owner needs to go on, whatever else is out to it.
  size_t first = WindowTo(rank, frame.assigned);
  for (const ChunkIndex chunk : frame.chunks) {
    const uint32_t c = chunk.value();
    if (c >= assignments_.size() || assignments_[c].assigned != frame.assigned ||
        assignments_[c].owner != rank || !Covers(self(), chunk) ||
        !assignments_[c].holders.empty() || slots_[c].held()) {
      Refuse(FrameRefusal::kAskSuperseded);
      continue;
    }
    if (!HasOwn(chunk)) continue;  // its lane sends it as soon as it is there
    const bool at_once = first > 0 && first-- > 0;
    bool& sent = frame.assigned == 0 ? assignments_[c].sent_first : assignments_[c].sent_again;
    if (!sent) {
      // Its lane has not come to it, and does so once the window has a place.
      Lane& lane = lanes_[static_cast<size_t>(rank)];
      if (!at_once && lane.out >= WindowTo(rank, frame.assigned)) continue;
      ++lane.out;
      sent = true;
    }
    out.push_back(SendInput{from, chunk, frame.assigned});
  }
}

// The inputs of `rank` that must be on their way, once more: a connection broke, they may be lost.
void Round::AskMember(int rank, RoundActions& out) {
  if (rank == self() || !Trusts(rank)) return;
  if (seen_ > 0 && !plan_members_.Contains(rank)) return;
  std::map<Ballot, std::vector<ChunkIndex>> asks;
  for (const ChunkIndex chunk : pending_) {
    if (!Covers(rank, chunk)) continue;
    const Gathering& inputs = inputs_[{chunk, assignments_[chunk.value()].assigned}];
    if (!inputs.folding.empty() || (inputs.in | inputs.bad).Contains(rank)) continue;
    asks[assignments_[chunk.value()].assigned].push_back(chunk);
  }
  // Lanes send in this order, a window ahead: these are the chunks that the member may have sent.
  // How wide its window is, it alone knows.
  size_t window = fixed_->spec.max_window_chunks;
  for (auto& [assigned, chunks] : asks) {
    chunks.resize(std::min(chunks.size(), window));
    window -= chunks.size();
  }
  std::erase_if(asks, [](const auto& ask) { return ask.second.empty(); });
  for (auto& [assigned, chunks] : asks)
    Emit(PeerAt(rank), Ask{static_cast<uint8_t>(rank), assigned, std::move(chunks)}, out);
}

}  // namespace crowdsurf::worker
