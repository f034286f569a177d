#include "base/text.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace crowdsurf {
namespace {

// The decoder of RFC 3629 the long way: by the value of the character. -1: none begins here.
int Decoded(const std::string& text, size_t& at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const int lengths[] = {1, 0, 2, 3, 4, 0, 0, 0, 0};
  int ones = 0;
  while (ones < 8 && (byte(at) & (0x80 >> ones)) != 0) ++ones;
  const int length = lengths[ones];
  if (length == 0) return -1;
  int value = length == 1 ? byte(at) : byte(at) & (0x7F >> length);
  for (int i = 1; i < length; ++i) {
    if ((byte(at + static_cast<size_t>(i)) & 0xC0) != 0x80) return -1;
    value = value << 6 | (byte(at + static_cast<size_t>(i)) & 0x3F);
  }
  const int least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < least[length] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return -1;
  at += static_cast<size_t>(length);
  return value;
}

bool Valid(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    if (Decoded(text, at) < 0) return false;
  }
  return true;
}

std::string Euros(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += "\xE2\x82\xAC";
  return out;
}

TEST(TextTest, ACutNeverSplitsACharacter) {
  const std::string text = "a" + Euros(30);
  EXPECT_EQ(CutText(text, 60), "a" + Euros(19));
  EXPECT_EQ(CutText(text, 61), "a" + Euros(20));
  EXPECT_EQ(CutText(text, 1000), text);
  EXPECT_EQ(TextTail(text, 60), Euros(20));
  EXPECT_EQ(TextTail(text, 59), Euros(19));
  EXPECT_EQ(TextTail(text, 1000), text);
  EXPECT_EQ(CutText(text, 0), "");
  EXPECT_EQ(TextTail(text, 0), "");
}

TEST(TextTest, BytesThatAreNoTextAreReplacedOneByOne) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(ValidText("a\xFFz"), "a" + bad + "z");
  EXPECT_EQ(ValidText("\xC0\x80"), bad + bad) << "overlong";
  EXPECT_EQ(ValidText("\xED\xA0\x80"), bad + bad + bad) << "a surrogate";
  EXPECT_EQ(ValidText("\xF4\x90\x80\x80"), bad + bad + bad + bad) << "beyond U+10FFFF";
  EXPECT_EQ(ValidText("\xE2\x82"), bad + bad) << "the text ends in it";
  EXPECT_EQ(CutText("a\xFF", 3), "a") << "a replacement has three bytes";
}

TEST(TextTest, AnyBytesBecomeValidTextWithinTheBound) {
  Rng rng(5);
  const std::string some[] = {"a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
  for (int run = 0; run < 20000; ++run) {
    std::string text;
    for (uint64_t i = rng.Uniform(12); i > 0; --i) {
      text += rng.Uniform(3) == 0 ? std::string(1, static_cast<char>(rng.Uniform(256)))
                                  : some[rng.Uniform(4)];
    }
    const size_t most = rng.Uniform(20);
    const std::string cut = CutText(text, most), tail = TextTail(text, most);
    ASSERT_TRUE(Valid(cut) && Valid(tail) && Valid(ValidText(text))) << run;
    ASSERT_LE(cut.size(), most);
    ASSERT_LE(tail.size(), most);
    ASSERT_EQ(ValidText(text) == text, Valid(text)) << run;
  }
}

TEST(TextTest, ALineIsShownAsATerminalWouldLeaveIt) {
  EXPECT_EQ(ShownLine("plain\twords"), "plain\twords");
  EXPECT_EQ(ShownLine("from Windows\r"), "from Windows");
  EXPECT_EQ(ShownLine(" 10%\r 20%\r 30%"), " 30%");
  EXPECT_EQ(ShownLine("\x1b[1;31mred\x1b[0m and \x1b[2Kplain"), "red and plain");
  EXPECT_EQ(ShownLine("\x1b]0;title\x07words \x1b]8;;http://x\x1b\\link"), "words link");
  EXPECT_EQ(ShownLine("bell\x07 back\b\x7F nul" + std::string(1, '\0') + "."), "bell back nul.");
  EXPECT_EQ(ShownLine("a\xC2\x9B"
                      "31mb \xC3\xA9\xC2\xA7"),
            "a31mb \xC3\xA9\xC2\xA7")
      << "U+009B is a CSI";
  EXPECT_EQ(ShownLine("cut in it\x1b[3"), "cut in it");
  EXPECT_EQ(ShownLine("\x1b"), "");
  EXPECT_EQ(ShownLine(""), "");
  EXPECT_EQ(ShownLine("a\xFFz"), "a\xEF\xBF\xBDz");
}

TEST(TextTest, PiecesEndAtSeparators) {
  using Pieces = std::vector<std::string_view>;
  EXPECT_EQ(SplitText("", ' '), Pieces());
  EXPECT_EQ(SplitText("one", ' '), Pieces({"one"}));
  EXPECT_EQ(SplitText("one two", ' '), Pieces({"one", "two"}));
  EXPECT_EQ(SplitText("one\n\ntwo\n", '\n'), Pieces({"one", "", "two"}));
}

}  // namespace
}  // namespace crowdsurf
