// What the core is told of the shapes in a trainer's table.
#include "worker/edge/agent/tensor_views.h"

#include <gtest/gtest.h>

namespace crowdsurf::worker {
namespace {

LinkTensor Tensor(std::string name, std::vector<uint64_t> shape,
                  LinkRole role = LinkRole::kParameter) {
  LinkTensor tensor;
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  tensor.role = role;
  return tensor;
}

TEST(TensorViewsTest, SharedTensorsLieWhereTheyAreInTheVector) {
  const auto link = LayOutLink(
      {Tensor("kernel", {4, 3, 2}), Tensor("momentum", {4, 6}, LinkRole::kOptimizerState),
       Tensor("bias", {7}), Tensor("weights", {5, 9})},
      {LinkRole::kParameter});
  ASSERT_TRUE(link.ok()) << link.status();
  const TensorViews views = ViewsOf(link->tensors);
  ASSERT_EQ(views.size(), 3u);
  EXPECT_EQ(views[0], (TensorView{0, {4, 6}}));
  EXPECT_EQ(views[1].begin, 24u);
  EXPECT_EQ(uint64_t{views[1].shape.rows} * views[1].shape.cols, 7u);
  EXPECT_EQ(views[2], (TensorView{31, {5, 9}}));
}

TEST(TensorViewsTest, AShapeThatIsTooLargeIsLeftOut) {
  LinkTensor tensor = Tensor("wide", {1});
  tensor.offset = 0;
  tensor.rows = 1;
  tensor.cols = uint64_t{1} << 32;
  EXPECT_TRUE(ViewsOf({tensor}).empty());
}

}  // namespace
}  // namespace crowdsurf::worker
