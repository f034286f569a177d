// NumberOf: a number of one kind of thing. It does not pass for a number of another kind.
//
// It is ordered and printed like its value, and is never converted implicitly. A value; any thread.
#pragma once

#include <compare>
#include <ostream>

namespace crowdsurf {

template <class Tag, class Value>
class NumberOf {
 public:
  constexpr NumberOf() = default;  // 0
  constexpr explicit NumberOf(Value value) : value_(value) {}
  constexpr Value value() const { return value_; }
  constexpr bool is_zero() const { return value_ == 0; }

  constexpr auto operator<=>(const NumberOf&) const = default;
  constexpr NumberOf& operator++() {
    ++value_;
    return *this;
  }
  friend constexpr NumberOf operator+(NumberOf number, Value count) {
    return NumberOf(static_cast<Value>(number.value_ + count));
  }
  friend constexpr NumberOf operator-(NumberOf number, Value count) {
    return NumberOf(static_cast<Value>(number.value_ - count));
  }

  friend std::ostream& operator<<(std::ostream& out, NumberOf number) {
    return out << number.value_;
  }

 private:
  Value value_ = 0;
};

}  // namespace crowdsurf
