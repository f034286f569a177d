// Tokens of tensor connections in the clear: good once, for one peer, and for a while.
#include "worker/core/link/tensor_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

Time At(double seconds) { return Time() + Seconds(1000 + seconds); }

PeerId Peer(uint8_t number) {
  std::array<uint8_t, PeerId::kBytes> bytes{};
  bytes[5] = number;
  bytes[0] = 1;
  return PeerId(bytes);
}

TensorToken Token(uint16_t number) {
  std::array<uint8_t, TensorToken::kBytes> bytes{};
  bytes[15] = static_cast<uint8_t>(number);
  bytes[14] = static_cast<uint8_t>(number >> 8);
  bytes[0] = 7;
  return TensorToken(bytes);
}

TokenHalves Halves(uint16_t number) {
  return {Token(number), Token(static_cast<uint16_t>(~number))};
}

TEST(TensorTokensTest, ATokenIsGoodOnceForItsPeerAndAnsweredByItsOtherHalf) {
  TensorTokens tokens;
  ASSERT_TRUE(tokens.Give(At(0), Peer(1), Halves(1)));
  ASSERT_TRUE(tokens.Give(At(0), Peer(2), Halves(2)));
  EXPECT_EQ(tokens.Take(At(1), Peer(2), Token(1)).refusal, TokenRefusal::kUnknown);
  EXPECT_EQ(tokens.Take(At(1), Peer(3), Token(1)).refusal, TokenRefusal::kUnknown);
  const TensorTokens::Taken taken = tokens.Take(At(1), Peer(1), Token(1));
  EXPECT_FALSE(taken.refusal.has_value()) << "what others tried took nothing from it";
  EXPECT_EQ(taken.answered, Halves(1).answered);
  EXPECT_EQ(tokens.Take(At(1), Peer(1), Token(1)).refusal, TokenRefusal::kReplayed);
  EXPECT_TRUE(tokens.Take(At(1), Peer(1), Token(1)).answered.none());
}

TEST(TensorTokensTest, ATokenExpiresAndANewerOneReplacesIt) {
  TensorTokens tokens({.life = Seconds(10)});
  ASSERT_TRUE(tokens.Give(At(0), Peer(1), Halves(1)));
  EXPECT_EQ(tokens.Take(At(10), Peer(1), Token(1)).refusal, TokenRefusal::kExpired);
  ASSERT_TRUE(tokens.Give(At(11), Peer(1), Halves(2)));
  ASSERT_TRUE(tokens.Give(At(12), Peer(1), Halves(3)));
  EXPECT_EQ(tokens.size(), 1u);
  EXPECT_EQ(tokens.Take(At(13), Peer(1), Token(2)).refusal, TokenRefusal::kUnknown);
  EXPECT_FALSE(tokens.Take(At(21.9), Peer(1), Token(3)).refusal.has_value());
}

TEST(TensorTokensTest, TheTableIsBoundedAndWhatIsUsedUpGoesFirst) {
  TensorTokens tokens({.peers = 3, .life = Seconds(10)});
  for (uint8_t i = 1; i <= 3; ++i) ASSERT_TRUE(tokens.Give(At(i), Peer(i), Halves(i)));
  EXPECT_FALSE(tokens.Give(At(4), Peer(4), Halves(4)));
  EXPECT_TRUE(tokens.Give(At(4), Peer(1), Halves(9))) << "it has its place";
  EXPECT_FALSE(tokens.Take(At(5), Peer(2), Token(2)).refusal.has_value());
  EXPECT_TRUE(tokens.Give(At(6), Peer(4), Halves(4))) << "2 has used its token up";
  EXPECT_EQ(tokens.Take(At(6), Peer(2), Token(2)).refusal, TokenRefusal::kUnknown) << "it is gone";
  EXPECT_TRUE(tokens.Give(At(13), Peer(5), Halves(5))) << "3 has expired";
  EXPECT_EQ(tokens.size(), 3u);
  EXPECT_FALSE(tokens.Take(At(13), Peer(1), Token(9)).refusal.has_value());
}

// Any order of giving and taking: nothing is taken twice, nor by others.
TEST(TensorTokensTest, NoTokenIsTakenTwiceInAnyOrder) {
  Rng rng(18);
  TensorTokens tokens({.peers = 8, .life = Seconds(5)});
  std::map<uint16_t, uint8_t> owners;  // token -> peer
  std::set<uint16_t> taken;
  uint16_t next = 0;
  for (int i = 0; i < 5000; ++i) {
    const auto peer = static_cast<uint8_t>(rng.Uniform(12));
    if (next == 0 || rng.Uniform(3) == 0) {
      const uint16_t fresh = next++;
      if (tokens.Give(At(0.5 * i), Peer(peer), Halves(fresh))) owners[fresh] = peer;
      EXPECT_LE(tokens.size(), 8u);
      continue;
    }
    const auto token = static_cast<uint16_t>(next - 1 - rng.Uniform(std::min<uint16_t>(next, 4)));
    if (tokens.Take(At(0.5 * i), Peer(peer), Token(token)).refusal) continue;
    EXPECT_TRUE(owners.contains(token) && owners[token] == peer) << i;
    EXPECT_TRUE(taken.insert(token).second) << i;
  }
  EXPECT_GT(taken.size(), 20u);
}

TEST(TensorTokensTest, WordsTravelAndGarbageIsRefused) {
  const std::vector<TokenWord> words = {{7, true, {}}, {8, false, Halves(3)}, {~0ULL, false, {}}};
  for (const TokenWord& word : words) {
    const Bytes bytes = EncodeTokenWord(word);
    EXPECT_EQ(DecodeTokenWord(bytes), word);
    for (size_t size = 0; size < bytes.size(); ++size)
      EXPECT_FALSE(DecodeTokenWord(ByteView(bytes).first(size)).has_value()) << size;
    Bytes longer = bytes;
    longer.push_back(0);
    EXPECT_FALSE(DecodeTokenWord(longer).has_value());
    Bytes other = bytes;
    other[0] = 9;
    EXPECT_FALSE(DecodeTokenWord(other).has_value());
  }
}

TEST(TensorTokensTest, TokensThatDifferInOneBitAreNotTheSame) {
  for (size_t byte = 0; byte < TensorToken::kBytes; ++byte) {
    std::array<uint8_t, TensorToken::kBytes> bytes = Token(1).bytes();
    EXPECT_TRUE(SameToken(Token(1), TensorToken(bytes)));
    bytes[byte] ^= 0x40;
    EXPECT_FALSE(SameToken(Token(1), TensorToken(bytes))) << byte;
  }
}

}  // namespace
}  // namespace crowdsurf::worker
