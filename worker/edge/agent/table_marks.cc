#include "worker/edge/agent/table_marks.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>

#include "base/digest.h"
#include "worker/core/port/seat_messages.h"

namespace crowdsurf::worker {

std::vector<uint32_t> MarksOf(const std::vector<LinkTensor>& tensors) {
  std::vector<uint32_t> marks;
  marks.reserve(std::min(tensors.size(), kMaxTableMarks));
  for (LinkTensor tensor : tensors) {
    if (marks.size() == kMaxTableMarks) break;
    tensor.offset = 0;  // the tensors before it decide that
    marks.push_back(static_cast<uint32_t>(ContentHash(EncodeLinkTable({tensor}), /*key=*/0)));
  }
  return marks;
}

std::string InWords(const SeatRefusal& refusal, const std::vector<LinkTensor>& tensors) {
  if (!refusal.tensor) return refusal.reason;
  const std::string other = refusal.worker.empty() ? "another worker" : refusal.worker;
  if (*refusal.tensor >= tensors.size()) {
    return absl::StrCat(refusal.reason, ": ", other, " has more than these ", tensors.size());
  }
  const LinkTensor& tensor = tensors[*refusal.tensor];
  if (tensor.role == LinkRole::kFrozen) {
    return absl::StrCat("the frozen parameters are not those of ", other,
                        ": load the same values at all workers before join()");
  }
  return absl::StrCat(refusal.reason, ": '", tensor.name, "' (", LinkDtypeName(tensor.dtype), " [",
                      absl::StrJoin(tensor.shape, ", "), "]) is not as at ", other);
}

}  // namespace crowdsurf::worker
