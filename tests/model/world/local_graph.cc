#include "tests/model/world/local_graph.h"

#include <algorithm>

namespace crowdsurf::worker::testing {
namespace {

constexpr uint64_t kSuspectEvent = uint64_t{1} << 28;
constexpr uint64_t kTrustEvent = uint64_t{2} << 28;
constexpr uint64_t kLateEvent = uint64_t{3} << 28;

std::string KeyOf(const Wire& wire) {
  ByteWriter out;
  out.U8(static_cast<uint8_t>(wire.from));
  out.U8(static_cast<uint8_t>(wire.to));
  out.U8(static_cast<uint8_t>(wire.payload.index()));
  if (const auto* frame = std::get_if<Frame>(&wire.payload)) {
    out.Raw(EncodeFrame(*frame));
  } else if (const auto* input = std::get_if<InputBytes>(&wire.payload)) {
    out.U8(static_cast<uint8_t>(input->rank));
    out.U32(input->chunk.value());
    out.U16(input->assigned);
  } else {
    const auto& result = std::get<ResultBytes>(wire.payload);
    out.U32(result.chunk.value());
    out.U16(result.assigned);
    out.U64(result.mask.bits());
    out.U64(result.hash);
  }
  return std::string(AsString(out.bytes()));
}

uint64_t TokenOf(const FoldChunk& fold) {
  ByteWriter out;
  out.U32(fold.chunk.value());
  out.U16(fold.assigned);
  out.U64(fold.mask.bits());
  return ContentHash(out.bytes(), 1);
}

}  // namespace

LocalGraph::LocalGraph(std::vector<RoundSpec> specs, Faults faults)
    : specs_(std::move(specs)), faults_(faults) {
  const std::vector<RoundCell>& cells = specs_.front().cells;
  for (size_t rank = 0; rank < cells.size(); ++rank)
    rank_of_[*cells[rank].member] = static_cast<int>(rank);
}

NodeId LocalGraph::Start(int member) {
  Node node{member, Round(specs_[static_cast<size_t>(member)]), {}, {}, {}};
  RoundActions out;
  node.round->Start(out);
  Execute(node, std::move(out));
  return InternNode(std::move(node));
}

MessageId LocalGraph::Intern(const Wire& wire) {
  const auto [it, fresh] =
      message_ids_.try_emplace(KeyOf(wire), static_cast<MessageId>(messages_.size()), wire);
  if (!fresh) return it->second.first;
  messages_.push_back(&it->second.second);
  if (const auto* frame = std::get_if<Frame>(&wire.payload))
    if (const auto* accept = std::get_if<Accept>(&frame->body))
      proposed_[Sha256(accept->value)] = DecodeHeldValue(accept->value);
  return it->second.first;
}

const std::optional<HeldValue>& LocalGraph::Proposed(const Digest& accepted) const {
  return proposed_.at(accepted);
}

Digest LocalGraph::HeldRoot(const std::vector<ChunkValue>& chunks) {
  RoundValue value;
  value.chunks = chunks;
  return RootOf(value);
}

void LocalGraph::Send(Node& node, const PeerId& to, Payload payload) {
  if (const auto* frame = std::get_if<Frame>(&payload))
    if (std::holds_alternative<Refused>(frame->body)) return;  // a hint; here it is always lost
  const MessageId id = Intern({node.member, rank_of_.at(to), std::move(payload)});
  const auto at = std::lower_bound(node.sent.begin(), node.sent.end(), id);
  if (at == node.sent.end() || *at != id) node.sent.insert(at, id);
}

void LocalGraph::Execute(Node& node, RoundActions actions) {
  for (size_t i = 0; i < actions.size(); ++i) {
    const RoundAction action = actions[i];
    if (const auto* frame = std::get_if<SendFrame>(&action)) {
      Send(node, frame->to, frame->frame);
    } else if (const auto* input = std::get_if<SendInput>(&action)) {
      Send(node, input->to, InputBytes{node.member, input->chunk, input->assigned, {}});
    } else if (const auto* result = std::get_if<SendResult>(&action)) {
      Send(node, result->to,
           ResultBytes{result->chunk, result->assigned, result->mask, result->hash, {}});
    } else if (const auto* fold = std::get_if<FoldChunk>(&action)) {
      node.round->OnFolded(fold->chunk, fold->assigned, TokenOf(*fold), actions);
    }
  }
}

// What can be seen of a node from outside.
void LocalGraph::Learn(Node& node) const {
  Facts& facts = node.facts;
  facts.accepted.clear();
  for (const MessageId id : node.sent) {
    const auto* frame = std::get_if<Frame>(&messages_[id]->payload);
    if (frame == nullptr) continue;
    if (const auto* have = std::get_if<Have>(&frame->body); have != nullptr && have->ballot == 0)
      facts.have0 = have->root;
    if (const auto* accepted = std::get_if<Accepted>(&frame->body))
      facts.accepted.emplace_back(accepted->ballot, accepted->value);
  }
  if (!node.round) return;
  facts.over = node.round->over();
  facts.ballot = node.round->ballot();
  const std::optional<RoundOver>& outcome = node.round->outcome();
  RoundActions served;
  Round copy = *node.round;
  Fetch all;
  const std::vector<ChunkSpan>& chunks = specs_.front().chunks;
  for (uint32_t c = 0; c < chunks.size(); ++c) all.chunks.push_back(ChunkIndex(c));
  const int asker = node.member == 0 ? 1 : 0;
  const PeerId from = *specs_.front().cells[static_cast<size_t>(asker)].member;
  copy.OnFrame(from, {copy.spec().instance, all}, served);
  std::vector<ChunkValue> held(chunks.size());
  size_t full = 0;
  for (const RoundAction& action : served) {
    const auto& result = std::get<SendResult>(action);
    held[result.chunk.value()] = {result.assigned, result.mask, result.hash};
    ++full;
  }
  facts.held = HeldRoot(held);
  const bool early = faults_.apply_early && full == chunks.size();
  if (facts.applied) return;  // the first flip stands
  if (early || (outcome && Applied(outcome->outcome))) facts.applied = facts.held;
}

// Whoever applied tells it to everybody who asks, for ever: its DECIDED frames are kept apart from
// what it sent (`told`), as if all had been asked for. That allows more than can happen, and saves
// telling apart who asked already.
void LocalGraph::KeepTold(Node& node) {
  if (!node.round || !node.round->over()) return;
  node.facts.suspects = {};
  std::erase_if(node.sent, [this](MessageId id) {
    const auto* frame = std::get_if<Frame>(&messages_[id]->payload);
    return frame != nullptr && std::holds_alternative<Decided>(frame->body);
  });
  if (!node.told.empty()) return;
  const std::vector<RoundCell>& cells = specs_.front().cells;
  for (int rank = 0; rank < static_cast<int>(cells.size()); ++rank) {
    if (rank == node.member) continue;
    Round copy = *node.round;
    RoundActions out;
    const PeerId asker = *cells[static_cast<size_t>(rank)].member;
    const BallotOpen ask{static_cast<Ballot>(rank + 1), false, copy.branch(), {}};
    copy.OnFrame(asker, {copy.spec().instance, ask}, out);
    for (const RoundAction& action : out)
      if (const auto* send = std::get_if<SendFrame>(&action))
        if (std::holds_alternative<Decided>(send->frame.body))
          node.told.push_back(Intern({node.member, rank, send->frame}));
  }
}

NodeId LocalGraph::InternNode(Node node) {
  KeepTold(node);
  Learn(node);
  ByteWriter key;
  key.U8(static_cast<uint8_t>(node.member));
  key.U64(node.round ? node.round->Fingerprint() : 0);
  key.Bool(node.facts.dead);
  key.U64(node.facts.suspects.bits());
  if (node.facts.applied) key.Raw(node.facts.applied->view());
  for (const MessageId id : node.sent) key.U32(id);
  key.U32(~uint32_t{0});
  for (const MessageId id : node.told) key.U32(id);
  const auto [it, fresh] =
      node_ids_.try_emplace(std::string(AsString(key.bytes())), static_cast<NodeId>(nodes_.size()));
  if (fresh) nodes_.push_back(std::move(node));
  return it->second;
}

template <class Input>
NodeId LocalGraph::Step(NodeId id, uint64_t event, Input input) {
  const uint64_t key = uint64_t{id} << 32 | event;
  if (const auto it = steps_.find(key); it != steps_.end()) return it->second;
  Node node = nodes_[id];
  input(node);
  const NodeId to = InternNode(std::move(node));
  steps_.emplace(key, to);
  return to;
}

NodeId LocalGraph::Deliver(NodeId id, MessageId message) {
  return Step(id, message, [&](Node& node) {
    const Wire& wire = *messages_[message];
    const PeerId from = *specs_.front().cells[static_cast<size_t>(wire.from)].member;
    RoundActions out;
    if (const auto* frame = std::get_if<Frame>(&wire.payload)) {
      const auto* accept = std::get_if<Accept>(&frame->body);
      if (faults_.witness_forgets && accept != nullptr && accept->ballot < node.facts.ballot)
        Send(node, from, Frame{frame->instance, Accepted{accept->ballot, Sha256(accept->value)}});
      node.round->OnFrame(from, *frame, out);
    } else if (const auto* input = std::get_if<InputBytes>(&wire.payload)) {
      node.round->OnInput(from, input->rank, input->chunk, input->assigned, out);
    } else {
      const auto& result = std::get<ResultBytes>(wire.payload);
      node.round->OnResult(from, result.chunk, {result.assigned, result.mask, result.hash}, out);
    }
    Execute(node, std::move(out));
  });
}

NodeId LocalGraph::Suspect(NodeId id, int rank) {
  return Step(id, kSuspectEvent + static_cast<uint64_t>(rank), [&](Node& node) {
    RoundActions out;
    node.facts.suspects.Insert(rank);
    node.round->OnSuspect(*specs_.front().cells[static_cast<size_t>(rank)].member,
                          SuspicionCause::kSilence, out);
    Execute(node, std::move(out));
  });
}

NodeId LocalGraph::Trust(NodeId id, int rank) {
  return Step(id, kTrustEvent + static_cast<uint64_t>(rank), [&](Node& node) {
    RoundActions out;
    node.facts.suspects.Erase(rank);
    node.round->OnTrusted(*specs_.front().cells[static_cast<size_t>(rank)].member, out);
    Execute(node, std::move(out));
  });
}

NodeId LocalGraph::Late(NodeId id) {
  return Step(id, kLateEvent, [&](Node& node) {
    RoundActions out;
    node.round->OnCoordinatorLate(out);
    Execute(node, std::move(out));
  });
}

NodeId LocalGraph::Bury(NodeId id) {
  Node node = nodes_[id];
  node.round.reset();
  node.facts.dead = true;
  node.facts.held = Digest();
  node.facts.suspects = {};
  node.facts.over = false;
  return InternNode(std::move(node));
}

}  // namespace crowdsurf::worker::testing
