#include "simulator/chaos/subnet_checkers.h"

#include <absl/strings/str_cat.h>

#include "base/bytes.h"
#include "base/digest.h"

namespace crowdsurf::simulator {

void SubnetCheckers::Add(int node, const std::string& what) {
  violations_.Add("subnets", absl::StrCat("node ", node, ": ", what));
}

void SubnetCheckers::OnRound(int node, const ChunkHost<float>::Opened& opened,
                             const std::vector<float>& result, const std::vector<float>& base) {
  ++rounds_;
  std::vector<bool> covered(result.size());
  for (worker::ChunkIndex chunk; chunk.value() < opened.chunks.size(); ++chunk) {
    for (const uint64_t element : opened.ElementsOf(chunk)) {
      if (covered[element]) Add(node, absl::StrCat("element ", element, " is in two chunks"));
      covered[element] = true;
    }
  }
  for (size_t element = 0; element < result.size(); ++element) {
    if (covered[element]) continue;
    ++kept_;
    if (result[element] != base[element])
      Add(node, absl::StrCat("element ", element, " moved though nobody covered it"));
  }
}

void SubnetCheckers::OnCommitted(int node, const Digest& root, const std::vector<float>& model) {
  const Digest content =
      Sha256({reinterpret_cast<const uint8_t*>(model.data()), model.size() * sizeof(float)});
  const auto [at, fresh] = models_.try_emplace(root, content);
  if (!fresh && at->second != content)
    Add(node, absl::StrCat("another model than others have after ", root.brief()));
}

}  // namespace crowdsurf::simulator
