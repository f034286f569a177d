// LocalGraph: what one member of a round can do, computed once by the real Round and remembered.
//
// A node is a copy of a Round together with everything it has sent so far; an event (a message, a
// suspicion) leads to another node. As a member's sends follow from its own history alone, a state
// of the whole group is just one node per member: the messages on the wire are the union of what
// the nodes have sent. Folding is immediate; a result's hash is a token of (chunk, assigned, mask).
// Owner: Explorer. Single sequence. Nodes and messages are never dropped: the caller bounds them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/model/world/round_host.h"

namespace crowdsurf::worker::testing {

using NodeId = uint32_t;
using MessageId = uint32_t;

struct Wire {
  int from;
  int to;
  Payload payload;  // bytes are left out of INPUT and RESULT
};

// What the checkers need to know of a node; read from its frames and from what it serves.
struct Facts {
  std::optional<Digest> applied;  // root
  bool over = false;
  bool dead = false;
  Ballot ballot = 0;
  std::optional<Digest> have0;                      // root of the HAVE(0) it sent
  std::vector<std::pair<Ballot, Digest>> accepted;  // ACCEPTED it sent
  Digest held;                                      // root of (chunk, assigned, mask, hash) it has
  RankSet suspects = {};                            // by rank
};

class LocalGraph {
 public:
  // An early flip and a forgetful witness are faults of a host, not of Round.
  struct Faults {
    bool apply_early = false;
    bool witness_forgets = false;
  };
  LocalGraph(std::vector<RoundSpec> specs, Faults faults);

  NodeId Start(int member);
  // The same node when nothing changes.
  NodeId Deliver(NodeId node, MessageId message);
  NodeId Suspect(NodeId node, int rank);
  NodeId Trust(NodeId node, int rank);
  NodeId Late(NodeId node);
  // What a dead member knew no longer matters; what it sent and applied does.
  NodeId Bury(NodeId node);

  const Facts& facts(NodeId node) const { return nodes_[node].facts; }
  const std::vector<MessageId>& sent(NodeId node) const { return nodes_[node].sent; }
  // DECIDED to each other member, when it applied.
  const std::vector<MessageId>& told(NodeId node) const { return nodes_[node].told; }
  const Wire& wire(MessageId message) const { return *messages_[message]; }
  MessageId Intern(const Wire& wire);
  // Of the values that were proposed: by the digest that ACCEPTED names.
  const std::optional<HeldValue>& Proposed(const Digest& accepted) const;
  static Digest HeldRoot(const std::vector<ChunkValue>& chunks);
  size_t nodes() const { return nodes_.size(); }
  size_t messages() const { return messages_.size(); }

 private:
  struct Node {
    int member;
    std::optional<Round> round;   // nullopt: dead
    std::vector<MessageId> sent;  // ascending
    std::vector<MessageId> told;
    Facts facts;
  };
  template <class Input>
  NodeId Step(NodeId node, uint64_t event, Input input);
  void Execute(Node& node, RoundActions actions);
  void Send(Node& node, const PeerId& to, Payload payload);
  void KeepTold(Node& node);
  void Learn(Node& node) const;
  NodeId InternNode(Node node);

  std::vector<RoundSpec> specs_;
  Faults faults_;
  std::map<PeerId, int> rank_of_;
  std::deque<Node> nodes_;  // references to nodes stay good
  std::unordered_map<std::string, NodeId> node_ids_;
  std::unordered_map<uint64_t, NodeId> steps_;  // (node, event) -> node
  std::vector<const Wire*> messages_;
  std::map<std::string, std::pair<MessageId, Wire>> message_ids_;
  std::map<Digest, std::optional<HeldValue>> proposed_;
};

}  // namespace crowdsurf::worker::testing
