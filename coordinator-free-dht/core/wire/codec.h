// Codec: Message <-> bytes.
//
// One version byte, one kind byte, the id, of a reply its sender's clock, then the fields in order
// through the bounded ByteReader.
// It rejects instead of repairing. A wrong version, kind, count or length gives no message. So does
// a bool that is neither 0 nor 1, or a single byte too many. The caller counts and drops it. The
// input's own length bounds the allocation. Pure. Any thread.
#pragma once

#include <optional>

#include "base/bytes.h"
#include "coordinator-free-dht/core/wire/message.h"

namespace crowdsurf::dht {

inline constexpr size_t kMaxContacts = 64;   // of a reply; k is 20
inline constexpr size_t kMaxRecords = 1024;  // of a message
inline constexpr size_t kMaxHave = 1024;     // of a watch request
inline constexpr size_t kMaxValue =
    size_t{64} * 1024;                          // bytes; NodeConfig::value_bytes may be less
inline constexpr size_t kMaxEndpoint = 261;     // a DNS name, a colon, a port
inline constexpr size_t kMaxMessage = 2 << 20;  // bytes; longer input is refused unread

Bytes Encode(const Message& message);
std::optional<Message> Decode(ByteView bytes);

// One record alone, for files and tests; same rules.
Bytes EncodeRecord(const Record& record);
std::optional<Record> DecodeRecord(ByteView bytes);

}  // namespace crowdsurf::dht
