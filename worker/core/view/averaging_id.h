// AveragingId: the number of an averaging. A lineage of views counts its averagings from 1.
//
// 0 stands for none where a field says so. At most kMaxNumber (view.h). A value; any thread.
#pragma once

#include <cstdint>

#include "base/number_of.h"

namespace crowdsurf::worker {

struct AveragingIdTag;
using AveragingId = NumberOf<AveragingIdTag, uint64_t>;

}  // namespace crowdsurf::worker
