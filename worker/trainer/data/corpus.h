// Corpus: text from files, a vocabulary of its bytes, and a training and a held-out part.
//
// Files are joined in the order of the paths given, directories in the order of their file names
// (not below them; hidden files, fortune's .dat indices and .u8 links, and files with a zero byte
// are left out). Tokens are the bytes that occur, numbered in byte order, so every worker with the
// same files has the same vocabulary. The split is by blocks of up to 4,096 bytes, a tenth of them
// held out, chosen by a seed of its own so that runs with other seeds are measured on the same
// text. Immutable after Load. Bounds: kMaxCorpusBytes in all.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "base/status.h"

namespace crowdsurf::trainer {

inline constexpr size_t kMaxCorpusBytes = size_t{1} << 30;  // it lies in memory twice over
inline constexpr size_t kMinCorpusBytes = 2048;             // 32 blocks of 64 bytes
inline constexpr double kHeldOutShare = 0.1;

// The bytes that may occur, ascending; token = index.
class Vocabulary {
 public:
  explicit Vocabulary(std::string_view text);
  size_t size() const { return bytes_.size(); }
  char ByteOf(uint8_t token) const { return bytes_[token]; }
  std::optional<uint8_t> TokenOf(char byte) const;
  // Bytes outside the vocabulary are left out.
  std::vector<uint8_t> Encode(std::string_view text) const;
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  std::vector<int> token_of_;  // 256 entries, -1: none
};

struct Corpus {
  Vocabulary vocabulary;
  std::vector<uint8_t> train;                  // training blocks, joined in text order
  std::vector<std::vector<uint8_t>> held_out;  // blocks, in text order; each has >= 2 tokens

  size_t held_out_tokens() const;
};

// The bytes of all files. NotFound: a path that does not exist or holds no text; InvalidArgument:
// too much text.
StatusOr<std::string> ReadTexts(const std::vector<std::string>& paths);

// InvalidArgument when `text` is below kMinCorpusBytes. Equal text and seed give equal corpora.
StatusOr<Corpus> MakeCorpus(std::string_view text, uint64_t split_seed);

}  // namespace crowdsurf::trainer
