// Messages: what peers of a job say to each other outside the DHT, beside the round's own frames.
//
// One Send of the host carries one of them. The sender is authenticated by the transport and never
// named inside. Values; any thread. Codec in messages_codec.cc: canonical, bounded on the way in.
// Source: docs/views.md.
#pragma once

#include <cstddef>
#include <optional>
#include <variant>

#include "base/bytes.h"
#include "worker/core/port/averaging_messages.h"
#include "worker/core/port/seat_messages.h"
#include "worker/core/port/view_messages.h"

namespace crowdsurf::worker {

using Message =
    std::variant<message::RoundFrame, message::DueFor, message::Begin, message::SeatingNews,
                 message::JoinRequest, message::JoinAnswer, message::ViewNews, message::ViewAsk,
                 message::ViewOpen, message::ViewPromise, message::ViewAccept,
                 message::ViewAccepted, message::BranchOpen, message::BranchJoin,
                 message::BranchView, message::BranchHeld, message::Leaving, message::CountedAsk,
                 message::CountedAnswer, message::ListInUse, message::ListAsk, message::Pair,
                 message::ViewVoteAsk, message::ViewVote, message::Neighbour, message::LeasesWanted,
                 message::LedgerAsk, message::LedgerNews>;

inline constexpr size_t kMaxName = 256;       // a worker's name
inline constexpr size_t kMaxEndpoint = 300;   // host (253) and port
inline constexpr size_t kMaxContacts = 4096;  // in one message
inline constexpr size_t kMaxViewBytes = 16U << 20;
inline constexpr size_t kMaxFrameBytes = 64U << 20;

Bytes EncodeMessage(const Message& message);
// nullopt: garbled, over a limit, or bytes left over.
std::optional<Message> DecodeMessage(ByteView bytes);

}  // namespace crowdsurf::worker
