// ViewHash: the name of a view, a hash of all of it but its seats (view.h).
//
// A value; any thread.
#pragma once

#include "base/id.h"

namespace crowdsurf::worker {

struct ViewHashTag;
using ViewHash = FixedId<ViewHashTag, 32>;

}  // namespace crowdsurf::worker
