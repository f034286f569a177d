// No value ends its line or passes for another field.
#include "base/edge/log_sink.h"

#include <gtest/gtest.h>

namespace crowdsurf {
namespace {

TEST(LogSinkTest, AValueCannotBreakItsLine) {
  EXPECT_EQ(FormatField({"k", "plain-1.5"}), "k=plain-1.5");
  EXPECT_EQ(FormatField({"k", ""}), "k=\"\"");
  EXPECT_EQ(FormatField({"k", "two words"}), "k=\"two words\"");
  EXPECT_EQ(FormatField({"k", "a\"b\\c\nlevel=error"}), "k=\"a\\\"b\\\\c\\x0alevel=error\"");
  EXPECT_EQ(ParseLogLevel("warning"), LogLevel::kWarning);
  EXPECT_EQ(ParseLogLevel("loud"), std::nullopt);
}

}  // namespace
}  // namespace crowdsurf
