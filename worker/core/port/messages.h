// Messages: what peers of a job say to each other outside the DHT, beside the round's own frames.
//
// One Send of the host carries one of them. The sender is authenticated by the transport and never
// named inside. Values; any thread. Codec in messages_codec.cc: canonical, bounded on the way in.
// Source: docs/views.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "worker/core/strategy/pair_exchange.h"
#include "worker/core/view/view.h"
#include "worker/core/view/witness.h"

namespace crowdsurf::worker {

// How to reach a peer, and what people call it.
struct Contact {
  PeerId id;
  std::string worker;
  std::string peer_endpoint;
  std::string tensor_endpoint;
  bool operator==(const Contact&) const = default;
};

// What a peer holds: the last committed average and the job's count with it.
struct Committed {
  uint64_t averaging = 0;  // 0: nothing was ever committed
  Digest root;             // content hash; none: not hashed yet, so it cannot be fetched
  double job_samples = 0;
  bool operator==(const Committed&) const = default;
};

// Rank of a line of views when two lines meet (docs/views.md).
struct LineRank {
  uint64_t members = 0;  // View::fork_members
  ViewHash origin;
  bool operator==(const LineRank&) const = default;
  bool Beats(const LineRank& other) const {
    return members != other.members ? members > other.members : origin < other.origin;
  }
};

namespace message {

// A frame of a round (round_codec.h) with what tells why an instance is unknown to the receiver.
struct RoundFrame {
  ViewHash view;
  uint64_t epoch = 0;
  uint64_t averaging = 0;
  uint8_t round = 0;
  CellIndex group = 0;  // least cell of the group
  Bytes frame;
  bool operator==(const RoundFrame&) const = default;
};
// The sender is due for `averaging`; with it, what it has committed.
struct DueFor {
  ViewHash view;
  uint64_t averaging = 0;
  Committed committed;
  Digest seats;  // Seating::MinorHash: a peer that knows others tells them
  bool operator==(const DueFor&) const = default;
};
// Half of the members are due: averaging `averaging` opens. Forwarded once.
struct Begin {
  ViewHash view;
  uint64_t averaging = 0;
  bool operator==(const Begin&) const = default;
};
// Seats and vacancies of a view; the receiver merges them.
struct SeatingNews {
  ViewHash view;
  std::vector<Seat> seats;
  std::vector<Vacancy> vacancies;
  std::vector<Contact> contacts;  // of the seated
  Digest all;                     // Seating::MinorHash of all that the sender knows, these included
  bool operator==(const SeatingNews&) const = default;
};
// The list of this group in this round follows from these seats alone: bytes have moved under it.
// To a member that opened the round under another list.
struct ListInUse {
  ViewHash view;
  uint64_t averaging = 0;
  uint8_t round = 0;
  CellIndex group = 0;
  std::vector<Seat> seats;
  std::vector<Vacancy> vacancies;
  bool operator==(const ListInUse&) const = default;
};
// Under which list is this group's round open at you? (a speaker that knows another one)
struct ListAsk {
  InstanceId instance;
  bool operator==(const ListAsk&) const = default;
};
// A seat, please. From a newcomer, or from a member of a line that loses against the receiver's.
struct JoinRequest {
  Member member;  // cell is not meant
  Contact contact;
  uint64_t next = 0;     // the least averaging it can open
  uint64_t holds = 0;    // committed average whose parameters the trainer has
  bool trained = false;  // it has parameters worth keeping whatever `holds` says
  Digest schema;
  std::optional<LineRank> line;  // of the view it would leave
  bool operator==(const JoinRequest&) const = default;
};
struct JoinAnswer {
  enum class Kind : uint8_t {
    kFetchFirst,  // fetch `committed` from `contacts`, then ask again
    kAskSteward,  // `contacts[0]` is the steward
    kWait,        // noted: a seat or a view follows
    kNoView,      // I have none yet myself; noted
    kRefused      // other schema, other job's size: `reason`
  } kind = Kind::kWait;
  Committed committed;
  std::vector<Contact> contacts;
  std::string reason;
  bool operator==(const JoinAnswer&) const = default;
};
// A decided view with its seats: to its members, and to a peer that speaks of an older one.
struct ViewNews {
  Bytes view;  // Encode(View)
  std::vector<Seat> seats;
  std::vector<Vacancy> vacancies;
  std::vector<Contact> contacts;
  Committed committed;
  double job_seconds = 0;  // how long the job has trained, when this was sent (job_clock.h)
  bool operator==(const ViewNews&) const = default;
};
struct ViewAsk {  // tell me your view: mine is older
  bool operator==(const ViewAsk&) const = default;
};
// Is `named` decided, as far as you know? From a member of `held` (confirmation.h).
struct ViewVoteAsk {
  ViewHash held;  // none: of no view
  ViewHash named;
  bool operator==(const ViewVoteAsk&) const = default;
};
struct ViewVote {
  ViewHash named;
  enum class Kind : uint8_t {
    kUnknown,
    kHeld,      // a newcomer was told of it, and waits for others to name it
    kAccepted,  // as a witness of `held`, at `ballot`
    kDecided    // it is in it, was, or goes there next
  } kind = Kind::kUnknown;
  Ballot ballot = 0;
  bool operator==(const ViewVote&) const = default;
};
// Paxos on the register "successor of `parent`" (successor.h).
struct ViewOpen {
  ViewHash parent;
  Ballot ballot = 0;
  bool operator==(const ViewOpen&) const = default;
};
struct ViewPromise {
  ViewHash parent;
  Ballot ballot = 0;
  Ballot promised = 0;  // > ballot: refused
  Ballot accepted = 0;
  Bytes value;         // the accepted view
  uint64_t begun = 0;  // highest averaging with bytes under way at this witness, in `parent`
  bool operator==(const ViewPromise&) const = default;
};
struct ViewAccept {
  ViewHash parent;
  Ballot ballot = 0;
  Bytes view;
  bool operator==(const ViewAccept&) const = default;
};
struct ViewAccepted {
  ViewHash parent;
  Ballot ballot = 0;
  Ballot promised = 0;  // > ballot: refused
  bool operator==(const ViewAccepted&) const = default;
};
// A branch of `parent` (branching.h): a peer that answers has left the parent.
struct BranchOpen {
  ViewHash parent;
  uint32_t attempt = 0;
  bool operator==(const BranchOpen&) const = default;
};
struct BranchJoin {
  ViewHash parent;
  uint32_t attempt = 0;
  uint64_t next_averaging = 0;
  bool operator==(const BranchJoin&) const = default;
};
struct BranchView {
  ViewHash parent;
  uint32_t attempt = 0;
  Bytes view;
  bool operator==(const BranchView&) const = default;
};
struct BranchHeld {
  ViewHash parent;
  uint32_t attempt = 0;
  bool operator==(const BranchHeld&) const = default;
};
struct Leaving {  // the sender gives its cell back
  ViewHash view;
  bool operator==(const Leaving&) const = default;
};
// Was my weight in the decided value of this instance? (a member that was KEPT in round 0)
struct CountedAsk {
  InstanceId instance;
  bool operator==(const CountedAsk&) const = default;
};
struct CountedAnswer {
  InstanceId instance;
  bool counted = false;
  bool operator==(const CountedAnswer&) const = default;
};
struct Pair {  // of an exchange of two members (pair_exchange.h)
  ViewHash view;
  PairWord word;
  bool operator==(const Pair&) const = default;
};

}  // namespace message

using Message =
    std::variant<message::RoundFrame, message::DueFor, message::Begin, message::SeatingNews,
                 message::JoinRequest, message::JoinAnswer, message::ViewNews, message::ViewAsk,
                 message::ViewOpen, message::ViewPromise, message::ViewAccept,
                 message::ViewAccepted, message::BranchOpen, message::BranchJoin,
                 message::BranchView, message::BranchHeld, message::Leaving, message::CountedAsk,
                 message::CountedAnswer, message::ListInUse, message::ListAsk, message::Pair,
                 message::ViewVoteAsk, message::ViewVote>;

inline constexpr size_t kMaxName = 256;       // a worker's name
inline constexpr size_t kMaxEndpoint = 300;   // host (253) and port
inline constexpr size_t kMaxContacts = 4096;  // in one message
inline constexpr size_t kMaxViewBytes = 16U << 20;
inline constexpr size_t kMaxFrameBytes = 64U << 20;

Bytes EncodeMessage(const Message& message);
// nullopt: garbled, over a limit, or bytes left over.
std::optional<Message> DecodeMessage(ByteView bytes);

void Encode(const Contact& contact, ByteWriter& out);
Contact DecodeContact(ByteReader& in);
void Encode(const Committed& committed, ByteWriter& out);
Committed DecodeCommitted(ByteReader& in);

}  // namespace crowdsurf::worker
