// Tokens of TensorTransport: who may connect where connections show no certificate.

#include <openssl/rand.h>

#include "base/check.h"
#include "worker/edge/tensor/tensor_asio.h"
#include "worker/edge/tensor/tensor_io_thread.h"

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

// The peer is whom it says if it shows what control gave to that peer.
bool TensorTransport::Impl::IoThread::Admit(TensorConnection& connection,
                                            const TensorHello& hello) {
  if (!hello.token) {
    all_.CountRefused(TokenRefusal::kMissing);
    return false;
  }
  TensorTokens::Taken taken;
  {
    const std::lock_guard lock(all_.tokens_mutex_);
    taken = all_.tokens_.Take(all_.host_.Now(), hello.id, *hello.token);
  }
  if (taken.refusal) {
    all_.CountRefused(*taken.refusal);
    return false;
  }
  connection.ShowToken(taken.answered);
  return true;
}

// ---- dialling ----------------------------------------------------------------------------------

void TensorTransport::Impl::UseToken(const PeerId& peer, uint64_t number,
                                     std::optional<TokenHalves> halves) {
  IoThread* const thread = stopped_ ? nullptr : ThreadOf(peer);
  if (thread == nullptr) return;
  thread->Post([thread, peer, number, halves] { thread->UseToken(peer, number, halves); });
}

void TensorTransport::Impl::LoseToken(const PeerId& peer) {
  IoThread* const thread = stopped_ ? nullptr : ThreadOf(peer);
  if (thread == nullptr) return;
  thread->Post([thread, peer] { thread->LoseToken(peer); });
}

// The connection's deadline runs meanwhile.
void TensorTransport::Impl::IoThread::AskForToken(const PeerId& peer, Link& link) {
  link.asked = ++all_.asks_;
  link.connection->ExpectSocket(link.outbox);
  (void)all_.host_.Post([&all = all_, keep = all_.shared_from_this(), peer, number = link.asked](
                            Time now, WallTime wall) {
    if (!all.stopped_) all.handlers_.on_token_wanted(now, wall, peer, number);
  });
}

void TensorTransport::Impl::IoThread::UseToken(const PeerId& peer, uint64_t number,
                                               const std::optional<TokenHalves>& halves) {
  Link* const link = WaitsForToken(peer);
  if (link == nullptr || link->asked != number) return;
  if (!halves) WarnOfNoToken(peer);
  if (!halves) return EndAsk(*link, "it gives no token");
  link->asked = 0;
  link->connection->ShowToken(halves->shown);
  link->connection->ExpectToken(halves->answered);
  DialOut(peer, *link);
}

// Not asked again from here: where control breaks at once each time, that would be a tight loop.
void TensorTransport::Impl::IoThread::LoseToken(const PeerId& peer) {
  if (Link* const link = WaitsForToken(peer)) EndAsk(*link, "control was cut");
}

// nullptr: no attempt waits. One that has ended meanwhile asks again when it is made again.
TensorTransport::Impl::IoThread::Link* TensorTransport::Impl::IoThread::WaitsForToken(
    const PeerId& peer) {
  const auto it = links_.find(peer);
  if (all_.stopped_ || it == links_.end() || it->second.asked == 0) return nullptr;
  return it->second.connection && !it->second.dialed ? &it->second : nullptr;
}

void TensorTransport::Impl::IoThread::EndAsk(Link& link, const char* why) {
  link.asked = 0;
  const Connection connection = link.connection;  // its end may drop the link
  connection->End(TensorEnding::kFailed, why);
}

// Once a peer: it is asked again and again. Who is forgotten here is named once more.
void TensorTransport::Impl::IoThread::WarnOfNoToken(const PeerId& peer) {
  if (warned_.size() >= all_.options_.dialed) warned_.clear();
  if (!warned_.insert(peer).second) return;
  all_.log_.Warning("a peer gives no token for tensors in the clear: is its tls.mode another?",
                    {{"peer", peer.brief()}});
}

}  // namespace crowdsurf::worker
