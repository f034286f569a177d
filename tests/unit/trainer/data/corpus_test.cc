// How a text is read and split: parts that are disjoint and together the whole, and which files
// count.
#include "worker/trainer/data/corpus.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

namespace crowdsurf::trainer {
namespace {

namespace fs = std::filesystem;

// A directory of its own for each test, removed at its end.
class CorpusFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "corpus-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string Write(const std::string& name, const std::string& content) {
    std::ofstream(dir_ / name, std::ios::binary) << content;
    return (dir_ / name).string();
  }
  fs::path dir_;
};

// Every block is different, so that where a block went can be told.
std::string NumberedText(size_t blocks, size_t block) {
  std::string text;
  for (size_t i = 0; i < blocks; ++i) {
    std::string line = "block " + std::to_string(i) + " ";
    while (line.size() < block) line += static_cast<char>('a' + (i * 7 + line.size() * i) % 26);
    text += line.substr(0, block);
  }
  return text;
}

TEST(VocabularyTest, NumbersTheBytesThatOccurInByteOrder) {
  const Vocabulary vocabulary("banana\n\xc3\xa9");
  EXPECT_EQ(vocabulary.bytes(), "\nabn\xa9\xc3");
  EXPECT_EQ(vocabulary.TokenOf('a'), 1);
  EXPECT_EQ(vocabulary.TokenOf('z'), std::nullopt);
  EXPECT_EQ(vocabulary.ByteOf(3), 'n');
  EXPECT_EQ(vocabulary.Encode("nabz"), (std::vector<uint8_t>{3, 1, 2}));
}

TEST(VocabularyTest, All256BytesFit) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const Vocabulary vocabulary(all);
  EXPECT_EQ(vocabulary.size(), 256u);
  EXPECT_EQ(vocabulary.TokenOf('\xff'), 255);
}

TEST(CorpusTest, PartsAreDisjointTogetherTheWholeTextAndATenthIsHeldOut) {
  constexpr size_t kBlock = 4096, kBlocks = 50;
  const std::string text = NumberedText(kBlocks, kBlock);
  const auto corpus = MakeCorpus(text, 1);
  ASSERT_TRUE(corpus.ok());
  EXPECT_EQ(corpus->held_out.size(), 5u);
  EXPECT_EQ(corpus->train.size() + corpus->held_out_tokens(), text.size());
  std::multiset<std::string> parts, blocks;
  const auto decode = [&](std::span<const uint8_t> tokens) {
    std::string out;
    for (const uint8_t t : tokens) out += corpus->vocabulary.ByteOf(t);
    return out;
  };
  for (const auto& block : corpus->held_out) parts.insert(decode(block));
  for (size_t i = 0; i < corpus->train.size(); i += kBlock) {
    parts.insert(decode(std::span(corpus->train).subspan(i, kBlock)));
  }
  for (size_t i = 0; i < kBlocks; ++i) blocks.insert(text.substr(i * kBlock, kBlock));
  EXPECT_EQ(parts, blocks);
}

TEST(CorpusTest, SplitDependsOnItsSeedAlone) {
  const std::string text = NumberedText(60, 4096);
  const auto a = MakeCorpus(text, 1), b = MakeCorpus(text, 1), c = MakeCorpus(text, 2);
  EXPECT_EQ(a->held_out, b->held_out);
  EXPECT_EQ(a->train, b->train);
  EXPECT_NE(a->held_out, c->held_out);
}

TEST(CorpusTest, ShortTextsGetShorterBlocksAndTooShortOnesAreRefused) {
  const auto corpus = MakeCorpus(NumberedText(3, 1000), 1);
  ASSERT_TRUE(corpus.ok());
  EXPECT_EQ(corpus->held_out.size(), 3u);
  const auto refused = MakeCorpus("too short", 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.status().message(), "text: 9 bytes are too few, 2048 is the least");
}

TEST_F(CorpusFiles, DirectoryIsReadInNameOrderWithoutIndicesLinksHiddenAndBinaryFiles) {
  Write("b", "second ");
  Write("a", "first ");
  Write("a.dat", "index");
  Write(".hidden", "hidden");
  Write("binary", std::string("x\0y", 3));
  fs::create_symlink("a", dir_ / "a.u8");
  fs::create_directory(dir_ / "below");
  const auto text = ReadTexts({dir_.string(), Write("c", "third")});
  ASSERT_TRUE(text.ok()) << text.status();
  // c is in the directory too.
  EXPECT_EQ(*text, "first second thirdthird");
}

TEST_F(CorpusFiles, MissingEmptyAndTextlessPathsAreNamed) {
  const std::string missing = (dir_ / "nothing").string();
  EXPECT_EQ(ReadTexts({missing}).status().message(),
            "text: " + missing + ": no such file or directory");
  const std::string empty = Write("empty", "");
  EXPECT_EQ(ReadTexts({empty}).status().message(), "text: " + empty + ": empty file");
  EXPECT_EQ(ReadTexts({dir_.string()}).status().message(),
            "text: " + dir_.string() + ": no text file in this directory");
}

}  // namespace
}  // namespace crowdsurf::trainer
