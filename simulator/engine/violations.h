// Violations: what a run broke, by statement, with the first few in words.
//
// Filled by the checkers, read by tests and commands. Statements are a closed set: S1..S7 and L1 of
// the round protocol, and the names in kStatements. Single sequence.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace crowdsurf::simulator {

// Every statement that a checker can find broken; each is turned red once by a planted fault.
inline constexpr std::string_view kStatements[] = {
    "S1",         // two members applied different results in one instance of one branch
    "S2",         // what was applied is not one complete value
    "S3",         // two values were decided in an instance
    "S4",         // decided, but a live member of the deciding ballot does not hold it all
    "S5",         // contributors, weights and bits disagree
    "S6",         // a superseded or foreign chunk got into a slot or a sum
    "S7",         // two views meet in one instance
    "L1",         // a survivor did not end with the decided value
    "flip",       // results delivered for a snapshot more than once, or without one
    "twice",      // a snapshot is in a value twice
    "outer",      // an outer optimizer's step is wrong, or its state differs between members
    "base",       // two averages of one number in one lineage (Int8)
    "subnets",    // what nobody covered moved, or members of one value hold different models (IST)
    "first",      // trainers that average started from different parameters
    "mass",       // an exchange moved one end by what the other end did not (pairs, PowerGossip)
    "hull",       // a result of neighbours is beyond all models of its view
    "finite",     // a trainer was given a NaN
    "samples",    // the job-wide sample count is not the sum of the final weights
    "own",        // a member took a mean that its own values are not in (rounds: One)
    "resent",     // more bytes were sent again than the bound allows
    "bounds",     // a queue or a map outgrew its bound
    "view",       // two successors of one view
    "outbox",     // the trainer's snapshot was replaced while it was in use
    "lease",      // a sample is in the committed average twice
    "lost",       // a sample counts as committed and is not in all chunks, or is forgotten
    "retrained",  // a sample is trained again though the worker that trained it first lives
    "notice",     // a worker that left with notice has trained in vain
    "healed",     // after healing the survivors did not come together in time
};

class Violations {
 public:
  static constexpr size_t kMaxWords = 8;

  void Add(std::string_view statement, const std::string& what) {
    ++counts_[std::string(statement)];
    if (words_.size() < kMaxWords) words_.push_back(std::string(statement) + ": " + what);
  }
  bool none() const { return counts_.empty(); }
  uint64_t Count(std::string_view statement) const {
    const auto at = counts_.find(std::string(statement));
    return at == counts_.end() ? 0 : at->second;
  }
  const std::map<std::string, uint64_t>& counts() const { return counts_; }
  const std::vector<std::string>& words() const { return words_; }

 private:
  std::map<std::string, uint64_t> counts_;
  std::vector<std::string> words_;
};

}  // namespace crowdsurf::simulator
