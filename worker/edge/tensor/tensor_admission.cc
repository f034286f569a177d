// Tokens of TensorTransport: who may connect where connections show no certificate.

#include <openssl/rand.h>

#include "base/check.h"
#include "worker/edge/tensor/tensor_asio.h"
#include "worker/edge/tensor/tensor_transport_impl.h"

namespace crowdsurf::worker {
namespace {

TensorToken FreshToken() {
  std::array<uint8_t, TensorToken::kBytes> bytes{};
  CHECK_EQ(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())), 1);
  return TensorToken(bytes);
}

}  // namespace

// ---- accepting ---------------------------------------------------------------------------------

std::optional<TokenHalves> TensorTransport::Impl::GiveToken(const PeerId& peer) {
  if (!options_.tokens) {
    CountRefused(TokenRefusal::kUnused);
    return std::nullopt;
  }
  const TokenHalves fresh{FreshToken(), FreshToken()};
  const std::lock_guard lock(tokens_mutex_);
  if (tokens_.Give(host_.Now(), peer, fresh)) {
    metrics_.Tokens("given").Add();
    return fresh;
  }
  CountRefused(TokenRefusal::kFull);
  return std::nullopt;
}

// On the I/O thread: the peer is whom it says if it shows what control gave to that peer.
bool TensorTransport::Impl::Admit(TensorConnection& connection, const TensorHello& hello) {
  if (!hello.token) {
    CountRefused(TokenRefusal::kMissing);
    return false;
  }
  TensorTokens::Taken taken;
  {
    const std::lock_guard lock(tokens_mutex_);
    taken = tokens_.Take(host_.Now(), hello.id, *hello.token);
  }
  if (taken.refusal) {
    CountRefused(*taken.refusal);
    return false;
  }
  connection.ShowToken(taken.answered);
  return true;
}

// ---- dialling ----------------------------------------------------------------------------------

// The connection's deadline runs meanwhile.
void TensorTransport::Impl::AskForToken(const PeerId& peer, Link& link) {
  link.asked = ++asks_;
  link.connection->ExpectSocket(link.outbox);
  (void)host_.Post(
      [this, keep = shared_from_this(), peer, number = link.asked](Time now, WallTime wall) {
        if (!stopped_) handlers_.on_token_wanted(now, wall, peer, number);
      });
}

void TensorTransport::Impl::UseToken(const PeerId& peer, uint64_t number,
                                     std::optional<TokenHalves> halves) {
  asio::post(io_, [this, keep = shared_from_this(), peer, number, halves] {
    const auto it = links_.find(peer);
    if (stopped_ || it == links_.end() || it->second.asked != number) return;
    Link& link = it->second;
    // An attempt that has ended meanwhile asks again when it is made again.
    if (!link.connection || link.dialed) return;
    link.asked = 0;
    const Connection connection = link.connection;
    if (!halves) return connection->End(TensorEnding::kFailed, "it gives no token");
    connection->ShowToken(halves->shown);
    connection->ExpectToken(halves->answered);
    DialOut(peer, link);
  });
}

}  // namespace crowdsurf::worker
