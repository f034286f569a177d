#include "base/rng.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace crowdsurf {
namespace {

// splitmix64 (Steele, Lea and Flood, OOPSLA 2014): fills the state from one word.
uint64_t SplitMix(uint64_t& x) {
  uint64_t z = (x += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

uint64_t RotateLeft(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

}  // namespace

Rng::Rng(uint64_t seed) {
  for (uint64_t& word : state_) word = SplitMix(seed);
}

uint64_t Rng::Next() {
  const uint64_t result = RotateLeft(state_[1] * 5, 7) * 9;
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = RotateLeft(state_[3], 45);
  return result;
}

uint64_t Rng::Uniform(uint64_t bound) {
  CHECK_GT(bound, 0u);
  // Rejects the first 2^64 mod `bound` values: `bound` divides the rest, so each remainder is
  // equally likely.
  const uint64_t threshold = (0 - bound) % bound;
  for (;;) {
    const uint64_t x = Next();
    if (x >= threshold) return x % bound;
  }
}

double Rng::UniformDouble() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

double Rng::Normal() {
  const double u = 1.0 - UniformDouble();  // (0, 1]: log is finite
  const double v = UniformDouble();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

double Rng::Exponential(double mean) {
  CHECK_GT(mean, 0.0);
  return -mean * std::log(1.0 - UniformDouble());
}

uint64_t Rng::Poisson(double mean) {
  CHECK_GE(mean, 0.0);
  uint64_t count = 0;
  // Sums exponential gaps: exact for any mean, O(mean) draws.
  for (double t = 0; (t += -std::log(1.0 - UniformDouble())) < mean;) ++count;
  return count;
}

Rng Rng::Fork(std::string_view label) const {
  uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a over the label, then over the state
  for (const char c : label) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  // A product carries bits upwards only. The shift brings a word's upper bits down, too.
  for (const uint64_t word : state_) hash = (hash ^ word) * 0x100000001b3ULL ^ (word >> 29);
  return Rng(hash);
}

}  // namespace crowdsurf
