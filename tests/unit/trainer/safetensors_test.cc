// Model files against the published format (huggingface/safetensors), and files that break it.
#include "worker/trainer/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/rng.h"

namespace crowdsurf::trainer {
namespace {

ParameterTable Table() {
  ParameterTable table;
  table.Add("weight", {2, 3});
  table.Add("bias", {2});
  return table;
}

const std::vector<float> kValues = {1, 2, 3, 4, 5, 6, -1, 0.5f};

Bytes FileOf(const std::string& header, size_t floats) {
  ByteWriter out;
  out.U64(header.size());
  out.Raw(AsBytes(header));
  out.Raw(Bytes(floats * 4, 0));
  return out.Take();
}

// Byte by byte what the published format says.
TEST(SafetensorsTest, LayoutIsThePublishedOne) {
  const Bytes file = EncodeSafetensors(Table(), kValues, {{"format", "pt"}});
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | file[static_cast<size_t>(i)];
  ASSERT_LE(8 + length, file.size());
  EXPECT_EQ((8 + length) % 8, 0u);
  EXPECT_EQ(file[8], '{');
  const auto header = nlohmann::json::parse(AsString(ByteView(file).subspan(8, length)));
  EXPECT_EQ(header, nlohmann::json::parse(R"({
    "__metadata__": {"format": "pt"},
    "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "bias": {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]}})"));
  ASSERT_EQ(file.size(), 8 + length + 32);
  float last = 0;
  std::memcpy(&last, file.data() + file.size() - 4, 4);
  EXPECT_EQ(last, 0.5f);
}

TEST(SafetensorsTest, WhatIsWrittenIsReadBack) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("model-" + std::to_string(getpid()))).string();
  ASSERT_TRUE(WriteSafetensors(path, Table(), kValues, {{"k", "v"}}).ok());
  const auto file = ReadSafetensors(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata.at("k"), "v");
  EXPECT_EQ(file->values, kValues);
  EXPECT_EQ(file->Find("bias")->offset, 6u);
  EXPECT_EQ(*ParametersFrom(*file, Table()), kValues);
}

TEST(SafetensorsTest, TensorsInAnotherOrderFindTheirPlace) {
  ParameterTable other;
  other.Add("bias", {2});
  other.Add("weight", {2, 3});
  const std::vector<float> values = {-1, 0.5f, 1, 2, 3, 4, 5, 6};
  const auto file = DecodeSafetensors(EncodeSafetensors(other, values, {}));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*ParametersFrom(*file, Table()), kValues);
}

// 15 MiB of brackets took 1.1 GB before anybody looked at what they say.
TEST(SafetensorsTest, AHeaderThatIsDeepOrHasTooManyValuesIsReadNoFurther) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  for (const char* piece : {"[", "{\"a\":", "[0,", "0,"}) {
    std::string header = "{\"t\":[";
    while (header.size() < (15U << 20)) header += piece;
    EXPECT_FALSE(DecodeSafetensors(FileOf(header, 0)).ok()) << piece;
  }
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 300 << 10) << "KiB";
}

TEST(SafetensorsTest, MissingAndMisshapenTensorsAreAllNamed) {
  ParameterTable other;
  other.Add("weight", {3, 2});
  const auto file = DecodeSafetensors(EncodeSafetensors(other, std::vector<float>(6), {}));
  const auto parameters = ParametersFrom(*file, Table());
  EXPECT_EQ(parameters.status().message(),
            "safetensors: weight: shape [3, 2] where [2, 3] is needed; bias: missing");
}

TEST(SafetensorsTest, FilesThatBreakARuleAreRefused) {
  const std::vector<std::pair<std::string, size_t>> wrong = {
      {"[]", 0},
      {"{", 0},
      {R"({"a": 1})", 0},
      {R"({"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}})", 2},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", 1},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 0},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})", 2},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})", 2},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 2},
      {R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", 1},
      {R"({"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}})", 0},
      {R"({"__metadata__": {"a": 1}})", 0},
      {R"({"__metadata__": "a"})", 0},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
           "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
       1},
  };
  for (const auto& [header, floats] : wrong) {
    EXPECT_EQ(DecodeSafetensors(FileOf(header, floats)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << header;
  }
  EXPECT_TRUE(DecodeSafetensors(FileOf("{}", 0)).ok());
}

TEST(SafetensorsTest, CutAndFlippedBytesNeverCrash) {
  const Bytes good = EncodeSafetensors(Table(), kValues, {{"k", "v"}});
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(DecodeSafetensors(ByteView(good).first(length)).ok()) << length;
  }
  Rng rng(9);
  for (int i = 0; i < 2000; ++i) {
    Bytes bad = good;
    bad[rng.Uniform(bad.size())] ^= static_cast<uint8_t>(1u << rng.Uniform(8));
    const auto file = DecodeSafetensors(bad);
    if (!file.ok()) continue;
    EXPECT_EQ(file->values.size(), kValues.size());
  }
}

}  // namespace
}  // namespace crowdsurf::trainer
