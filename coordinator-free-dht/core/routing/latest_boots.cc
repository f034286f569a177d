#include "coordinator-free-dht/core/routing/latest_boots.h"

namespace crowdsurf::dht {

LatestBoots::Answer LatestBoots::OnProof(const PublicKey& key, uint64_t boot) {
  Answer answer;
  const auto [at, fresh] = keys_.try_emplace(key, Known{boot, 0});
  Known& known = at->second;
  if (boot < known.boot) {
    answer.verdict = Verdict::kOld;
    return answer;
  }
  if (boot > known.boot) {
    answer.verdict = Verdict::kReplaces;
    answer.replaced = PeerIdOf(key, known.boot);
    known.boot = boot;
  }
  if (!fresh) by_proof_.erase(known.proved);
  known.proved = ++proofs_;
  by_proof_.emplace(known.proved, key);
  if (keys_.size() > kMaxKeys) {
    keys_.erase(by_proof_.begin()->second);
    by_proof_.erase(by_proof_.begin());
    answer.forgot = true;
  }
  return answer;
}

bool LatestBoots::IsOld(const PublicKey& key, uint64_t boot) const {
  const auto at = keys_.find(key);
  return at != keys_.end() && boot < at->second.boot;
}

}  // namespace crowdsurf::dht
