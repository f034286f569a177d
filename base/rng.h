// Rng: a seeded, portable random generator that is a value.
//
// xoshiro256** (Blackman & Vigna 2018) seeded by splitmix64, with our own uniform, normal,
// exponential and shuffle, because the std distributions differ between libraries and a simulator
// run must be its seed on every machine. Fork(label) gives an independent stream, so that one
// feature's draws never shift another's. Not for keys. Single sequence (one owner); copy or Fork to
// share.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace crowdsurf {

class Rng {
 public:
  explicit Rng(uint64_t seed);

  uint64_t Next();                   // 64 uniform bits
  uint64_t Uniform(uint64_t bound);  // [0, bound), unbiased; bound > 0
  double UniformDouble();            // [0, 1), 53 bits
  double Normal();                   // mean 0, variance 1 (Box-Muller, one value a call)
  double Exponential(double mean);   // mean > 0
  bool Bernoulli(double probability) { return UniformDouble() < probability; }
  uint64_t Poisson(double mean);  // mean >= 0; O(mean)

  // An independent stream for `label`; does not advance this generator.
  Rng Fork(std::string_view label) const;

  template <class Container>
  void Shuffle(Container& items) {  // Fisher-Yates
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[Uniform(i)]);
  }

 private:
  std::array<uint64_t, 4> state_;
};

}  // namespace crowdsurf
