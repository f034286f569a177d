#include "coordinator-free-dht/edge/log_sink.h"

#include <gtest/gtest.h>

namespace crowdsurf::dht {
namespace {

TEST(LogSinkTest, AValueCannotBreakItsLine) {
  EXPECT_EQ(FormatField({"k", "plain-1.5"}), "k=plain-1.5");
  EXPECT_EQ(FormatField({"k", ""}), "k=\"\"");
  EXPECT_EQ(FormatField({"k", "two words"}), "k=\"two words\"");
  EXPECT_EQ(FormatField({"k", "a\"b\\c\nlevel=error"}), "k=\"a\\\"b\\\\c\\x0alevel=error\"");
  LogLevel level;
  EXPECT_TRUE(ParseLogLevel("warning", &level));
  EXPECT_EQ(level, LogLevel::kWarning);
  EXPECT_FALSE(ParseLogLevel("loud", &level));
}

}  // namespace
}  // namespace crowdsurf::dht
