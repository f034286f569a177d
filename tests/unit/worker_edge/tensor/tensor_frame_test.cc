// A header comes back as it was, and no mutated one makes its receiver allocate beyond the bound.
#include "worker/edge/tensor/tensor_frame.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

TEST(TensorFrameTest, HeadersComeBackAndBadOnesDoNot) {
  TensorHeader header;
  header.kind = TensorKind::kResult;
  header.rank = 63;
  header.assigned = 65'535;
  header.payload_bytes = kMaxTensorPayload;
  header.chunk = 0xFFFFFFFF;
  header.mask = ~0ULL;
  header.hash = 77;
  TensorHeaderBytes bytes = EncodeTensorHeader(header);
  ASSERT_EQ(DecodeTensorHeader(bytes), header);
  Rng rng(5);
  for (int i = 0; i < 100'000; ++i) {  // never crashes, and never believes a size over the bound
    TensorHeaderBytes mutated = bytes;
    for (int flips = 0; flips < 3; ++flips) {
      mutated[rng.Uniform(mutated.size())] ^= static_cast<uint8_t>(1 << rng.Uniform(8));
    }
    const auto decoded = DecodeTensorHeader(mutated);
    EXPECT_LE(decoded ? decoded->payload_bytes : 0, kMaxTensorPayload);
  }
  bytes[0] ^= 1;
  EXPECT_FALSE(DecodeTensorHeader(bytes));
}

// What members agree on, and what travels in plain text, always has its hash.
TEST(TensorFrameTest, OnlyInputsInTlsHaveNoHash) {
  for (const TensorKind kind : {TensorKind::kHello, TensorKind::kInput, TensorKind::kResult,
                                TensorKind::kState, TensorKind::kMix, TensorKind::kGoodbye}) {
    EXPECT_TRUE(IsHashed(kind, TensorWire::kPlain));
    EXPECT_EQ(IsHashed(kind, TensorWire::kTls), kind != TensorKind::kInput);
  }
}

// With TLS the bytes are those of the release before; in the clear a token follows.
TEST(TensorFrameTest, AHelloHasATokenOrNone) {
  TensorHello hello{.job = "job", .id = {}, .boot = 7, .listen = "127.0.0.1:9"};
  const Bytes without = EncodeTensorHello(hello);
  std::array<uint8_t, TensorToken::kBytes> bytes{};
  bytes[0] = 1;
  hello.token = TensorToken(bytes);
  const Bytes with = EncodeTensorHello(hello);
  EXPECT_EQ(with.size(), without.size() + TensorToken::kBytes);
  ASSERT_TRUE(DecodeTensorHello(without) && DecodeTensorHello(with));
  EXPECT_FALSE(DecodeTensorHello(without)->token.has_value());
  EXPECT_EQ(DecodeTensorHello(with)->token, hello.token);
  EXPECT_EQ(DecodeTensorHello(with)->listen, hello.listen);
  for (size_t size = 0; size < with.size(); ++size)
    EXPECT_FALSE(DecodeTensorHello(ByteView(with).first(size)).has_value()) << size;
}

}  // namespace
}  // namespace crowdsurf::worker
