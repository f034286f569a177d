#include "worker/core/link/tensor_tokens.h"

namespace crowdsurf::worker {
namespace {

enum class Kind : uint8_t { kAsk = 1, kAnswer = 2, kNone = 3 };

}  // namespace

bool SameToken(const TensorToken& a, const TensorToken& b) {
  uint8_t differs = 0;
  for (size_t i = 0; i < TensorToken::kBytes; ++i)
    differs = static_cast<uint8_t>(differs | (a.bytes()[i] ^ b.bytes()[i]));
  return differs == 0;
}

bool TensorTokens::Give(Time now, const PeerId& peer, const TokenHalves& fresh) {
  if (given_.size() >= config_.peers && !given_.contains(peer)) {
    std::erase_if(given_,
                  [now](const auto& one) { return one.second.taken || now >= one.second.until; });
    if (given_.size() >= config_.peers) return false;
  }
  given_[peer] = {fresh, now + config_.life};
  return true;
}

// A token that was taken or is too old stays until the peer asks again, so that it can be named.
TensorTokens::Taken TensorTokens::Take(Time now, const PeerId& peer, const TensorToken& shown) {
  const auto it = given_.find(peer);
  if (it == given_.end() || !SameToken(it->second.halves.shown, shown))
    return {TokenRefusal::kUnknown, {}};
  Given& given = it->second;
  if (given.taken) return {TokenRefusal::kReplayed, {}};
  if (now >= given.until) return {TokenRefusal::kExpired, {}};
  given.taken = true;
  return {std::nullopt, given.halves.answered};
}

Bytes EncodeTokenWord(const TokenWord& word) {
  ByteWriter out;
  const Kind kind = word.asks ? Kind::kAsk : word.halves ? Kind::kAnswer : Kind::kNone;
  out.U8(static_cast<uint8_t>(kind));
  out.U64(word.number);
  if (kind != Kind::kAnswer) return out.Take();
  out.Raw(word.halves->shown.view());
  out.Raw(word.halves->answered.view());
  return out.Take();
}

std::optional<TokenWord> DecodeTokenWord(ByteView bytes) {
  ByteReader in(bytes);
  const auto kind = static_cast<Kind>(in.U8());
  TokenWord word;
  word.number = in.U64();
  word.asks = kind == Kind::kAsk;
  if (kind == Kind::kAnswer) {
    TokenHalves halves;
    halves.shown = ReadId<TensorToken>(in);
    halves.answered = ReadId<TensorToken>(in);
    word.halves = halves;
  }
  const bool known = word.asks || kind == Kind::kAnswer || kind == Kind::kNone;
  return known && in.Done() ? std::optional(word) : std::nullopt;
}

}  // namespace crowdsurf::worker
