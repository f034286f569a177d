// Tensor tokens: which peers may open a tensor connection that shows no certificate.
//
// Where tensors travel in the clear, control keeps mutual TLS. A peer that is about to dial asks
// there for a token, and its connection shows it. Each token has two halves: the dialler shows one,
// and the acceptor answers with the other. So each knows that the other end, or somebody who passes
// everything on between them, is whom control named. A token is good once, for its peer alone, and
// not for long. The newest of a peer counts. A wrong token takes nothing from the peer that it
// names. Randomness comes from the host. Pure; single sequence. Bounds: `peers`; above it those
// whose token is used up or expired go, else nobody more gets one. Cost: O(log peers); O(peers)
// where the table is full. Source:
// docs/decisions/worker/edge/041-tokens-where-tensors-travel-in-the-clear.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "base/id.h"
#include "base/time.h"

namespace crowdsurf::worker {

struct TensorTokenTag;
using TensorToken = FixedId<TensorTokenTag, 16>;

struct TokenHalves {
  TensorToken shown;     // by the dialler, in its Hello
  TensorToken answered;  // by the acceptor, in its own
  bool operator==(const TokenHalves&) const = default;
};

// Why a connection is refused, or no token given.
enum class TokenRefusal : uint8_t {
  kMissing,   // a Hello without a token
  kUnknown,   // never given to that peer, or a newer one was
  kReplayed,  // it was shown before
  kExpired,   // it is too old
  kFull,      // asked for, and too many peers have one
  kUnused,    // asked for, of an agent whose tensors are encrypted
  kGarbled,   // what came over control says nothing
  kImpostor   // who accepted does not know the other half
};
inline constexpr std::array<std::string_view, 8> kTokenRefusals = {
    "missing", "unknown", "replayed", "expired", "full", "unused", "garbled", "impostor"};

struct TensorTokensConfig {
  size_t peers = 4096;
  Duration life = Seconds(10);  // an answer's way, a dial, and a Hello
};

class TensorTokens {
 public:
  using Config = TensorTokensConfig;
  explicit TensorTokens(Config config = {}) : config_(config) {}

  // From now on `peer` may dial once with `fresh`, which nobody can guess. False: the table is
  // full.
  [[nodiscard]] bool Give(Time now, const PeerId& peer, const TokenHalves& fresh);
  // A connection says that it is of `peer`, and shows a token.
  struct Taken {
    std::optional<TokenRefusal> refusal;  // nullopt: it is good
    TensorToken answered;                 // what the acceptor answers then
  };
  Taken Take(Time now, const PeerId& peer, const TensorToken& shown);
  size_t size() const { return given_.size(); }

 private:
  struct Given {
    TokenHalves halves;
    Time until;
    bool taken = false;
  };
  const Config config_;
  std::map<PeerId, Given> given_;
};

// What travels over control: a question, or its answer. `number` is of the question.
struct TokenWord {
  uint64_t number = 0;
  bool asks = true;
  std::optional<TokenHalves> halves = {};  // of an answer; nullopt: the other gives none
  bool operator==(const TokenWord&) const = default;
};
Bytes EncodeTokenWord(const TokenWord& word);
std::optional<TokenWord> DecodeTokenWord(ByteView bytes);  // nullopt: garbled

// Without telling by its time where two tokens differ.
bool SameToken(const TensorToken& a, const TensorToken& b);

}  // namespace crowdsurf::worker
