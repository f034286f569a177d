// Zeroed floats: as many as a model has, made at once, since the kernel makes a page of zeros when
// it is first written or read.
//
// A vector would write them all: 0.4 s a GB, in which its thread does nothing else. Owner: one
// holder at a time; any thread. Aborts where there is no address space left.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/check.h"

namespace crowdsurf::worker {

class ZeroedFloats {
 public:
  explicit ZeroedFloats(size_t size)
      : size_(size), values_(static_cast<float*>(std::calloc(size, sizeof(float)))) {
    CHECK(size == 0 || values_ != nullptr);
  }

  size_t size() const { return size_; }
  float* data() { return values_.get(); }
  const float* data() const { return values_.get(); }
  float* begin() { return data(); }
  const float* begin() const { return data(); }
  float* end() { return data() + size_; }
  const float* end() const { return data() + size_; }

 private:
  struct Free {
    void operator()(float* values) const { std::free(values); }
  };
  size_t size_;
  std::unique_ptr<float, Free> values_;
};

}  // namespace crowdsurf::worker
