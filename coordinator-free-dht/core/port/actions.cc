#include "coordinator-free-dht/core/port/actions.h"

namespace crowdsurf::dht {

const char* Name(PutResult result) {
  switch (result) {
    case PutResult::kPublished:
      return "published";
    case PutResult::kTooLarge:
      return "too_large";
    case PutResult::kExpired:
      return "expired";
    case PutResult::kTooFar:
      return "too_far";
    case PutResult::kTooMany:
      return "too_many";
  }
  return "unknown";
}

}  // namespace crowdsurf::dht
