// Counting models against Witten-Bell by brute force over strings, and on random text against its
// entropy.
#include "worker/trainer/data/ngram.h"

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "base/rng.h"

namespace crowdsurf::trainer {
namespace {

// Witten-Bell by brute force over strings: for each prediction, walks the whole training text.
double BruteForce(const std::string& train, const std::string& context, char next,
                  size_t vocabulary) {
  double shorter = 1.0 / static_cast<double>(vocabulary);
  if (!context.empty()) shorter = BruteForce(train, context.substr(1), next, vocabulary);
  double seen = 0, followed = 0;
  std::set<char> types;
  for (size_t i = 0; i + context.size() < train.size(); ++i) {
    if (train.compare(i, context.size(), context) != 0) continue;
    const char c = train[i + context.size()];
    ++seen;
    followed += c == next ? 1 : 0;
    types.insert(c);
  }
  if (seen == 0) return shorter;
  const double n = static_cast<double>(types.size());
  return (followed + n * shorter) / (seen + n);
}

Corpus TinyCorpus(const std::string& train, const std::vector<std::string>& held_out) {
  std::string all = train;
  for (const std::string& block : held_out) all += block;
  Corpus corpus{.vocabulary = Vocabulary(all), .train = {}, .held_out = {}};
  corpus.train = corpus.vocabulary.Encode(train);
  for (const std::string& block : held_out) {
    corpus.held_out.push_back(corpus.vocabulary.Encode(block));
  }
  return corpus;
}

TEST(NgramTest, MatchesABruteForceCountOnATinyText) {
  const std::string train = "the cat sat on the mat, the rat sat on the cat and that was that";
  const std::vector<std::string> held_out = {"that rat sat", "q the", "tt"};
  const Corpus corpus = TinyCorpus(train, held_out);
  double bits[3] = {};
  int scored = 0;
  for (const std::string& block : held_out) {
    for (size_t i = 1; i < block.size(); ++i, ++scored) {
      for (size_t n = 0; n < 3; ++n) {
        const size_t length = std::min(n, i);
        bits[n] -= std::log2(BruteForce(train, block.substr(i - length, length), block[i],
                                        corpus.vocabulary.size()));
      }
    }
  }
  const NgramBits result = HeldOutNgramBits(corpus);
  EXPECT_NEAR(result.unigram, bits[0] / scored, 1e-12);
  EXPECT_NEAR(result.bigram, bits[1] / scored, 1e-12);
  EXPECT_NEAR(result.trigram, bits[2] / scored, 1e-12);
}

TEST(NgramTest, ProbabilitiesOfEveryContextSumToOne) {
  const std::string train = "abracadabra";
  for (const std::string context : {"", "a", "ra", "xx", "za"}) {
    double sum = 0;
    for (const char c : std::string("abcdrxz")) sum += BruteForce(train, context, c, 7);
    EXPECT_NEAR(sum, 1, 1e-12) << context;
  }
}

TEST(NgramTest, RandomTextCostsItsEntropyWhateverTheOrder) {
  Rng rng(3);
  const auto random = [&](size_t length) {
    std::string text;
    while (text.size() < length) text += "abcd"[rng.Uniform(4)];
    return text;
  };
  const NgramBits bits = HeldOutNgramBits(TinyCorpus(random(200'000), {random(20'000)}));
  EXPECT_NEAR(bits.unigram, 2, 0.01);
  EXPECT_NEAR(bits.bigram, 2, 0.01);
  EXPECT_NEAR(bits.trigram, 2, 0.01);
}

}  // namespace
}  // namespace crowdsurf::trainer
