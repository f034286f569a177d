// The bytes behind a Round in the tests: real vectors of doubles, folded in rank order.
//
// One RoundHost a member; RoundWorld (round_world.h) connects them. It executes actions exactly as
// round.h says, and records what it applied, so that the checkers need not ask the Round.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/digest.h"
#include "worker/core/round/partition.h"
#include "worker/core/round/round.h"
#include "worker/core/round/round_codec.h"
#include "worker/core/round/round_witness.h"
#include "worker/core/round/speaker.h"

namespace crowdsurf::worker::testing {

struct InputBytes {
  int rank;
  ChunkIndex chunk;
  Ballot assigned;
  std::vector<double> values;
};
struct ResultBytes {
  ChunkIndex chunk;
  Ballot assigned;
  RankSet mask = {};
  uint64_t hash;
  std::vector<double> values;
};
using Payload = std::variant<Frame, InputBytes, ResultBytes>;

inline PeerId TestPeer(int number) {
  std::array<uint8_t, PeerId::kBytes> bytes{};
  bytes[0] = static_cast<uint8_t>(number + 1);
  bytes[31] = 7;
  return PeerId(bytes);
}

inline uint64_t HashOfValues(const std::vector<double>& values) {
  return ContentHash(
      {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(double)}, 17);
}

inline std::vector<double> FoldValues(RankSet mask, const std::vector<double>& weights,
                                      const std::vector<std::vector<double>>& inputs,
                                      size_t count) {
  std::vector<double> result(count, 0.0);
  double sum = 0;
  double members = 0;
  for (size_t r = 0; r < weights.size(); ++r) {
    if (!mask.Contains(r)) continue;
    sum += weights[r];
    members += 1;
  }
  for (size_t r = 0; r < weights.size(); ++r) {
    if (!mask.Contains(r)) continue;
    const double weight = sum == 0 ? 1.0 : weights[r];
    for (size_t i = 0; i < count; ++i) result[i] = result[i] + weight * inputs[r][i];
  }
  const double factor = 1.0 / (sum == 0 ? members : sum);
  for (double& value : result) value *= factor;
  return result;
}

class RoundHost {
 public:
  RoundHost(RoundSpec spec, std::vector<double> own, PlanRule rule)
      : round(std::move(spec), rule), own_(std::move(own)), output(own_.size(), 0.0) {}

  // Calls `send(to, payload)` for what goes out and `folding(chunk, assigned, hash)` for each fold;
  // its answer (OnFolded) is the world's to give, now or later.
  template <class SendTo, class Folding>
  void Execute(const RoundActions& actions, SendTo send, Folding folding) {
    for (const RoundAction& action : actions) {
      if (const auto* frame = std::get_if<SendFrame>(&action)) {
        send(frame->to, frame->frame);
      } else if (const auto* input = std::get_if<SendInput>(&action)) {
        send(input->to, InputBytes{self(), input->chunk, input->assigned, Own(input->chunk)});
      } else if (const auto* result = std::get_if<SendResult>(&action)) {
        send(result->to, ResultBytes{result->chunk, result->assigned, result->mask, result->hash,
                                     Slot(result->chunk)});
      } else if (const auto* fold = std::get_if<FoldChunk>(&action)) {
        folding(fold->chunk, fold->assigned, Fold(*fold));
      } else if (const auto* store = std::get_if<StoreResult>(&action)) {
        Write(store->chunk, offered);
      } else if (const auto* empty = std::get_if<EmptySlot>(&action)) {
        Write(empty->chunk, std::vector<double>(Span(empty->chunk).count, kVoid));
      } else if (const auto* over = std::get_if<RoundOver>(&action)) {
        outcome = *over;
        ++ends;
        if (Applied(over->outcome) && !(first_flip_only && flips > 0)) Flip();
      } else if (const auto* formed = std::get_if<BranchFormed>(&action)) {
        branch = *formed;
      }
    }
  }

  void Keep(const InputBytes& input) {
    inputs[{input.chunk, input.assigned, input.rank}] = input.values;
    arrivals[{input.chunk, input.assigned}].push_back(input.rank);
  }
  void Flip() {  // the trainer sees the output now
    ++flips;
    applied = output;
  }
  const ChunkSpan& Span(ChunkIndex chunk) const { return round.spec().chunks[chunk.value()]; }
  std::vector<double> Slot(ChunkIndex chunk) const { return Cut(output, chunk); }
  std::vector<double> Own(ChunkIndex chunk) const { return Cut(own_, chunk); }
  int self() const { return round.spec().self; }

  static constexpr double kVoid = -1e300;  // what an emptied slot looks like
  Round round;

 private:
  std::vector<double> own_;

 public:
  std::vector<double> output;
  std::map<std::tuple<ChunkIndex, Ballot, int>, std::vector<double>> inputs;
  std::map<std::pair<ChunkIndex, Ballot>, std::vector<int>> arrivals;  // ranks, first come first
  std::vector<double> offered;  // bytes of the RESULT that is being given
  bool alive = true;
  int flips = 0;
  int ends = 0;
  std::vector<double> applied;
  std::optional<RoundOver> outcome;
  std::optional<BranchFormed> branch;
  bool first_flip_only = false;  // planted: an early flip stands
  bool reverse_fold = false;     // planted: folds in descending order
  bool arrival_fold = false;     // planted: folds as the inputs came, its own first

 private:
  std::vector<double> Cut(const std::vector<double>& from, ChunkIndex chunk) const {
    const ChunkSpan& span = Span(chunk);
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(span.begin);
    return {begin, begin + span.count};
  }
  void Write(ChunkIndex chunk, const std::vector<double>& values) {
    std::copy(values.begin(), values.end(),
              output.begin() + static_cast<std::ptrdiff_t>(Span(chunk).begin));
  }
  uint64_t Fold(const FoldChunk& fold) {
    std::vector<std::vector<double>> rows(fold.weights.size());
    std::vector<double> weights = fold.weights;
    for (size_t r = 0; r < rows.size(); ++r) {
      if (!fold.mask.Contains(r)) continue;
      rows[r] = static_cast<int>(r) == self()
                    ? Own(fold.chunk)
                    : inputs.at({fold.chunk, fold.assigned, static_cast<int>(r)});
    }
    RankSet mask = fold.mask;
    if (reverse_fold) {
      std::reverse(rows.begin(), rows.end());
      std::reverse(weights.begin(), weights.end());
      mask = {};
      for (size_t r = 0; r < rows.size(); ++r)
        if (!rows[r].empty()) mask.Insert(r);
    }
    if (arrival_fold) {
      std::vector<std::vector<double>> came = {rows[static_cast<size_t>(self())]};
      std::vector<double> theirs = {weights[static_cast<size_t>(self())]};
      for (const int rank : arrivals[{fold.chunk, fold.assigned}]) {
        if (!fold.mask.Contains(rank)) continue;
        came.push_back(rows[static_cast<size_t>(rank)]);
        theirs.push_back(weights[static_cast<size_t>(rank)]);
      }
      rows = std::move(came);
      weights = std::move(theirs);
      mask = RankSet::FirstRanks(rows.size());
    }
    const std::vector<double> result = FoldValues(mask, weights, rows, Span(fold.chunk).count);
    Write(fold.chunk, result);
    return HashOfValues(result);
  }
};

}  // namespace crowdsurf::worker::testing
