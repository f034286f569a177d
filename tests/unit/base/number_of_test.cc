#include "base/number_of.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <type_traits>

namespace crowdsurf {
namespace {

using Apples = NumberOf<struct ApplesTag, uint32_t>;
using Pears = NumberOf<struct PearsTag, uint32_t>;

// A number of one kind does not pass for a plain number or for a number of another kind.
static_assert(!std::is_convertible_v<uint32_t, Apples>);
static_assert(!std::is_convertible_v<Apples, uint32_t>);
static_assert(!std::is_convertible_v<Apples, Pears>);
static_assert(!std::is_constructible_v<Apples, Pears>);
static_assert(sizeof(Apples) == sizeof(uint32_t));

TEST(NumberOfTest, CountsAndComparesLikeItsValue) {
  Apples apples;
  EXPECT_TRUE(apples.is_zero());
  EXPECT_EQ(++apples, Apples(1));
  EXPECT_FALSE(apples.is_zero());
  EXPECT_EQ((apples + 41).value(), 42U);
  EXPECT_EQ((Apples(42) - 2).value(), 40U);
  EXPECT_LT(Apples(9), Apples(10));
  EXPECT_NE(Apples(9), Apples(10));
}

TEST(NumberOfTest, IsPrintedLikeItsValue) {
  std::ostringstream out;
  out << Apples(7);
  EXPECT_EQ(out.str(), "7");
}

}  // namespace
}  // namespace crowdsurf
