// The header of model.safetensors, against one written by hand from the format's own description.
#include "worker/core/link/safetensors.h"

#include <gtest/gtest.h>

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

TEST(Safetensors, QuotesAndControlCharactersAreEscaped) {
  auto g = LayOutLink({Tensor("w\"\\", {1})}, {LinkRole::kParameter});
  const Bytes bytes = EncodeSafetensorsHeader(g->tensors, {{"k", "a\nb"}});
  EXPECT_NE(AsString(bytes).find(R"("w\"\\":{)"), std::string_view::npos);
  EXPECT_NE(AsString(bytes).find(R"("a\u000ab")"), std::string_view::npos);
}

}  // namespace
}  // namespace crowdsurf::worker
