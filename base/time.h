// Time and Duration: strong 64-bit nanosecond types with no system call behind them.
//
// A core takes `Time now` as an argument and never asks a clock; hosts map Time to a monotonic
// clock (edges) or to virtual time (simulator). Time's origin is the host's choice and is never
// zero, so that zero can mean "unset". Wall-clock instants (certificate and DHT record expiry) are
// WallTime: nanoseconds since the Unix epoch. Arithmetic saturates at Infinite. Any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace crowdsurf {

class Duration {
 public:
  constexpr Duration() = default;
  static constexpr Duration Nanoseconds(int64_t n) { return Duration(n); }
  static constexpr Duration Infinite() { return Duration(std::numeric_limits<int64_t>::max()); }
  constexpr int64_t nanoseconds() const { return nanoseconds_; }
  constexpr double seconds() const { return static_cast<double>(nanoseconds_) * 1e-9; }
  constexpr double milliseconds() const { return static_cast<double>(nanoseconds_) * 1e-6; }
  constexpr bool infinite() const { return *this == Infinite(); }
  constexpr auto operator<=>(const Duration&) const = default;

 private:
  explicit constexpr Duration(int64_t n) : nanoseconds_(n) {}
  int64_t nanoseconds_ = 0;
};

constexpr Duration Nanoseconds(int64_t n) { return Duration::Nanoseconds(n); }
constexpr Duration Microseconds(int64_t n) { return Duration::Nanoseconds(n * 1'000); }
constexpr Duration Milliseconds(int64_t n) { return Duration::Nanoseconds(n * 1'000'000); }
// Fractional seconds, for configuration values; saturates.
constexpr Duration Seconds(double s) {
  return s >= 9.2e9 ? Duration::Infinite() : Duration::Nanoseconds(static_cast<int64_t>(s * 1e9));
}

constexpr Duration operator+(Duration a, Duration b) {
  return a.infinite() || b.infinite() ? Duration::Infinite()
                                      : Nanoseconds(a.nanoseconds() + b.nanoseconds());
}
constexpr Duration operator-(Duration a, Duration b) {
  return a.infinite() ? a : Nanoseconds(a.nanoseconds() - b.nanoseconds());
}
constexpr Duration operator*(Duration a, double k) {
  return a.infinite() ? a : Seconds(a.seconds() * k);
}

namespace time_internal {

// An instant of one clock; instants of different clocks do not mix.
template <class Clock>
class Instant {
 public:
  constexpr Instant() = default;
  static constexpr Instant FromNanoseconds(int64_t n) { return Instant(n); }
  static constexpr Instant Infinite() { return Instant(std::numeric_limits<int64_t>::max()); }
  constexpr int64_t nanoseconds() const { return nanoseconds_; }
  constexpr double seconds() const { return static_cast<double>(nanoseconds_) * 1e-9; }
  constexpr bool infinite() const { return *this == Infinite(); }
  constexpr bool unset() const { return nanoseconds_ == 0; }
  constexpr auto operator<=>(const Instant&) const = default;

  friend constexpr Instant operator+(Instant t, Duration d) {
    return t.infinite() || d.infinite() ? Infinite() : Instant(t.nanoseconds_ + d.nanoseconds());
  }
  friend constexpr Instant operator-(Instant t, Duration d) {
    return t.infinite() ? t : Instant(t.nanoseconds_ - d.nanoseconds());
  }
  friend constexpr Duration operator-(Instant a, Instant b) {
    return a.infinite() ? Duration::Infinite() : Nanoseconds(a.nanoseconds_ - b.nanoseconds_);
  }

 private:
  explicit constexpr Instant(int64_t n) : nanoseconds_(n) {}
  int64_t nanoseconds_ = 0;
};

struct MonotonicClock;
struct UnixClock;

}  // namespace time_internal

using Time = time_internal::Instant<time_internal::MonotonicClock>;
using WallTime = time_internal::Instant<time_internal::UnixClock>;

}  // namespace crowdsurf
