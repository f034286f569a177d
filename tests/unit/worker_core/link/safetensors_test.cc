// The header of model.safetensors, against one written by hand from the format's own description.
#include "worker/core/link/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

namespace crowdsurf::worker {
namespace {

LinkTensor Tensor(std::string name, std::vector<uint64_t> shape) {
  LinkTensor t;
  t.name = std::move(name);
  t.shape = std::move(shape);
  return t;
}

TEST(Safetensors, TheHeaderIsThatOfTheFormatsOwnDescription) {
  auto g = LayOutLink({Tensor("a", {2, 3}), Tensor("b", {})}, {LinkRole::kParameter});
  const Bytes bytes = EncodeSafetensorsHeader(g->tensors, {{"step", "7"}});
  // Written out by hand from the format's README: sizes 24 and 4, padded with spaces to 8.
  const std::string json =
      R"({"__metadata__":{"step":"7"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"F32","shape":[],"data_offsets":[24,28]}})";
  ByteReader in(bytes);
  const uint64_t length = in.U64();
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(length, bytes.size() - 8);
  const std::string text(AsString(in.Raw(length)));
  EXPECT_EQ(text.substr(0, json.size()), json);
  EXPECT_EQ(text.find_first_not_of(' ', json.size()), std::string::npos);
}

TEST(Safetensors, TensorsThatAreNotSharedHaveNoDataAndNoEntry) {
  auto tensors = std::vector{Tensor("a", {2}), Tensor("m", {2})};
  tensors[1].role = LinkRole::kOptimizerState;
  auto g = LayOutLink(tensors, {LinkRole::kParameter});
  const Bytes bytes = EncodeSafetensorsHeader(g->tensors, {});
  EXPECT_EQ(AsString(bytes).find("\"m\""), std::string_view::npos);
}

// A moment between two parameters, and one at the end: what is left of the vector has no hole.
TEST(Safetensors, MomentsThatAreAveragedAreNotInTheModel) {
  auto tensors = std::vector{Tensor("a", {2}), Tensor("m", {3}), Tensor("b", {4}), Tensor("c", {1}),
                             Tensor("n", {2})};
  tensors[1].role = tensors[4].role = LinkRole::kOptimizerState;
  tensors[3].role = LinkRole::kBuffer;
  const auto g =
      LayOutLink(tensors, {LinkRole::kParameter, LinkRole::kOptimizerState, LinkRole::kBuffer});
  ASSERT_EQ(g->elements, 12u);
  const Bytes header = EncodeSafetensorsHeader(g->tensors, {});
  EXPECT_NE(AsString(header).find(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                  R"("b":{"dtype":"F32","shape":[4],"data_offsets":[8,24]},)"
                                  R"("c":{"dtype":"F32","shape":[1],"data_offsets":[24,28]}})"),
            std::string_view::npos)
      << AsString(header);
  const std::vector<float> average = {0, 1, 20, 21, 22, 3, 4, 5, 6, 7, 80, 81};
  const std::vector<ByteView> parts = ModelData(g->tensors, average);
  ASSERT_EQ(parts.size(), 2u) << "b and c lie side by side";
  Bytes data(parts[0].begin(), parts[0].end());
  data.insert(data.end(), parts[1].begin(), parts[1].end());
  const std::vector<float> wanted = {0, 1, 3, 4, 5, 6, 7};
  ASSERT_EQ(data.size(), wanted.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(data.data(), wanted.data(), data.size()), 0);
}

TEST(Safetensors, QuotesAndControlCharactersAreEscaped) {
  auto g = LayOutLink({Tensor("w\"\\", {1})}, {LinkRole::kParameter});
  const Bytes bytes = EncodeSafetensorsHeader(g->tensors, {{"k", "a\nb"}});
  EXPECT_NE(AsString(bytes).find(R"("w\"\\":{)"), std::string_view::npos);
  EXPECT_NE(AsString(bytes).find(R"("a\u000ab")"), std::string_view::npos);
}

}  // namespace
}  // namespace crowdsurf::worker
