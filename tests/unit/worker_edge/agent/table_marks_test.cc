// Two models that differ, and the words that name the tensor.
#include "worker/edge/agent/table_marks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "worker/core/port/seat_messages.h"

namespace crowdsurf::worker {
namespace {

LinkTensor Tensor(std::string name, std::vector<uint64_t> shape) {
  LinkTensor tensor;
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  return tensor;
}

std::vector<LinkTensor> Table(std::vector<LinkTensor> tensors) {
  return LayOutLink(std::move(tensors), {LinkRole::kParameter}).value().tensors;
}

// The place of the first mark that differs.
size_t FirstOdd(const std::vector<LinkTensor>& a, const std::vector<LinkTensor>& b) {
  const auto left = MarksOf(a), right = MarksOf(b);
  return static_cast<size_t>(
      std::mismatch(left.begin(), left.end(), right.begin(), right.end()).first - left.begin());
}

TEST(TableMarksTest, TheFirstTensorThatDiffersIsFound) {
  const auto mine = Table({Tensor("a", {3}), Tensor("b", {4, 2}), Tensor("c", {5})});
  EXPECT_EQ(FirstOdd(mine, mine), 3u);
  EXPECT_EQ(FirstOdd(mine, Table({Tensor("a", {3}), Tensor("b", {2, 4}), Tensor("c", {5})})), 1u);
  EXPECT_EQ(FirstOdd(mine, Table({Tensor("a", {3}), Tensor("d", {4, 2}), Tensor("c", {5})})), 1u);
  EXPECT_EQ(FirstOdd(mine, Table({Tensor("a", {3}), Tensor("b", {4, 2})})), 2u);
  auto state = mine;
  state[1].role = LinkRole::kOptimizerState;
  EXPECT_EQ(FirstOdd(mine, state), 1u);
  // What comes before a tensor moves its place, and not its mark.
  EXPECT_EQ(MarksOf(Table({Tensor("a", {9}), Tensor("b", {4, 2})}))[1], MarksOf(mine)[1]);
}

TEST(TableMarksTest, ThereAreNoMoreThanAMessageTakes) {
  std::vector<LinkTensor> many;
  for (size_t i = 0; i <= kMaxTableMarks; ++i) many.push_back(Tensor(std::to_string(i), {1}));
  EXPECT_EQ(MarksOf(Table(many)).size(), kMaxTableMarks);
}

TEST(TableMarksTest, TheRefusalNamesTheTensorAndTheOther) {
  const auto mine = Table({Tensor("a", {3}), Tensor("b", {4, 2})});
  EXPECT_EQ(InWords({"another tensor table", "job-0-1", 1}, mine),
            "another tensor table: 'b' (float32 [4, 2]) is not as at job-0-1");
  EXPECT_EQ(InWords({"another tensor table", "", 2}, mine),
            "another tensor table: another worker has more than these 2");
  auto frozen = Tensor("frozen.00ff", {});
  frozen.role = LinkRole::kFrozen;
  const auto adapter = Table({Tensor("a", {3}), frozen});
  EXPECT_FALSE(adapter[1].shared());
  EXPECT_EQ(InWords({"another tensor table", "job-0-1", 1}, adapter),
            "the frozen parameters are not those of job-0-1: load the same values at all workers "
            "before join()");
  EXPECT_EQ(InWords({"the job is over", "job-0-1", std::nullopt}, mine), "the job is over");
}

}  // namespace
}  // namespace crowdsurf::worker
