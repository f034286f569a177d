#include "worker/trainer/data/corpus.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace crowdsurf::trainer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBlockBytes = 4096;  // a page of text: long enough for an RNN to warm up
constexpr size_t kMinBlocks = 32;        // shorter texts get shorter blocks

Status TooLong() {
  return absl::InvalidArgumentError(
      absl::StrCat("text: more than ", kMaxCorpusBytes, " bytes in all"));
}

bool IsIndexOrHidden(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') || path.extension() == ".dat" || path.extension() == ".u8";
}

// A file that the user names is taken as it is; of a folder only what looks like text.
Status Append(const fs::path& path, bool skip_binary, std::string& out) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error)
    return absl::NotFoundError(absl::StrCat("text: ", path.string(), ": ", error.message()));
  if (size > kMaxCorpusBytes - out.size()) return TooLong();
  std::ifstream in(path, std::ios::binary);
  std::string content(static_cast<size_t>(size), '\0');
  in.read(content.data(), static_cast<std::streamsize>(size));
  if (!in) return absl::NotFoundError(absl::StrCat("text: ", path.string(), ": cannot be read"));
  // A zero byte occurs in no text.
  if (skip_binary && content.find('\0') != std::string::npos) return absl::OkStatus();
  out += content;
  return absl::OkStatus();
}

Status AppendDirectory(const fs::path& directory, std::string& out) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (it->is_regular_file(gone) && !IsIndexOrHidden(it->path())) files.push_back(it->path());
  }
  if (error) {
    return absl::NotFoundError(absl::StrCat("text: ", directory.string(), ": ", error.message()));
  }
  // A folder has no order of its own, and all workers need the same text.
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) RETURN_IF_ERROR(Append(file, true, out));
  return absl::OkStatus();
}

}  // namespace

Vocabulary::Vocabulary(std::string_view text) : token_of_(256, -1) {
  for (const char c : text) token_of_[static_cast<uint8_t>(c)] = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (token_of_[byte] < 0) continue;
    token_of_[byte] = static_cast<int>(bytes_.size());
    bytes_.push_back(static_cast<char>(byte));
  }
}

std::optional<uint8_t> Vocabulary::TokenOf(char byte) const {
  const int token = token_of_[static_cast<uint8_t>(byte)];
  if (token < 0) return std::nullopt;
  return static_cast<uint8_t>(token);
}

std::vector<uint8_t> Vocabulary::Encode(std::string_view text) const {
  std::vector<uint8_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) {
    if (const auto token = TokenOf(c)) tokens.push_back(*token);
  }
  return tokens;
}

size_t Corpus::held_out_tokens() const {
  size_t sum = 0;
  for (const auto& block : held_out) sum += block.size();
  return sum;
}

StatusOr<std::string> ReadTexts(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) {
    std::error_code error;
    const bool is_directory = fs::is_directory(path, error);
    if (error || !fs::exists(path, error)) {
      return absl::NotFoundError(absl::StrCat("text: ", path, ": no such file or directory"));
    }
    const size_t before = text.size();
    RETURN_IF_ERROR(is_directory ? AppendDirectory(path, text) : Append(path, false, text));
    if (text.size() == before) {
      return absl::NotFoundError(absl::StrCat(
          "text: ", path, is_directory ? ": no text file in this directory" : ": empty file"));
    }
  }
  return text;
}

StatusOr<Corpus> MakeCorpus(std::string_view text, uint64_t split_seed) {
  if (text.size() < kMinCorpusBytes) {
    return absl::InvalidArgumentError(absl::StrCat("text: ", text.size(), " bytes are too few, ",
                                                   kMinCorpusBytes, " is the least"));
  }
  const size_t block = std::min(kMaxBlockBytes, text.size() / kMinBlocks);
  const size_t blocks = text.size() / block;  // the last one takes the rest
  std::vector<size_t> order(blocks);
  std::iota(order.begin(), order.end(), size_t{0});
  Rng rng = Rng(split_seed).Fork("held-out");
  rng.Shuffle(order);
  std::vector<bool> held(blocks, false);
  const auto count = static_cast<size_t>(std::llround(kHeldOutShare * static_cast<double>(blocks)));
  for (size_t i = 0; i < std::max<size_t>(1, count); ++i) held[order[i]] = true;

  // Of the whole text: a byte that only held-out blocks have is a token as well.
  Corpus corpus{.vocabulary = Vocabulary(text), .train = {}, .held_out = {}};
  for (size_t i = 0; i < blocks; ++i) {
    const size_t length = i + 1 < blocks ? block : std::string_view::npos;
    std::vector<uint8_t> tokens = corpus.vocabulary.Encode(text.substr(i * block, length));
    if (held[i]) {
      corpus.held_out.push_back(std::move(tokens));
    } else {
      corpus.train.insert(corpus.train.end(), tokens.begin(), tokens.end());
    }
  }
  return corpus;
}

}  // namespace crowdsurf::trainer
