// The model file as another reader sees it: taken apart here by the published format of
// safetensors. Who wins of several writers: shared_volume_test.cc.
#include "worker/edge/state/model_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/edge/files.h"
#include "tests/unit/worker_edge/state/file_size_limit.h"
#include "tests/unit/worker_edge/state/scratch_folder.h"

namespace crowdsurf::worker {
namespace {

struct ModelFileTest : testing::Test {
  CheckpointInfo Info(uint64_t averaging, const std::string& job = "charlm") const {
    LinkTensor tensor;
    tensor.name = "w";
    tensor.shape = {10, 10};
    tensor.offset = 0;
    CheckpointInfo info;
    info.job = job;
    info.averaging = AveragingId(averaging);
    info.tensors = {tensor};
    return info;
  }
  StatusOr<bool> Write(uint64_t averaging, float value, const std::string& job = "charlm") {
    return WriteModelFile(store, Info(averaging, job), std::vector<float>(100, value));
  }
  float Value() const {
    const std::string file = *ReadFile(path, 1 << 20);
    float last;
    memcpy(&last, file.data() + file.size() - 4, 4);
    return last;
  }
  size_t Files() const {
    size_t files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path()))
      ++files;
    return files;
  }
  ScratchFolder folder;
  const std::string path = folder / "model.safetensors";
  MetricRegistry metrics;
  CheckpointStore store{folder.path(), "w-0", 1, Logger(), metrics};
};

TEST_F(ModelFileTest, IsSafetensors) {
  EXPECT_TRUE(*Write(7, 99));
  const std::string file = *ReadFile(path, 1 << 20);
  ByteReader in(AsBytes(file));
  const auto json = nlohmann::json::parse(AsString(in.Raw(in.U64())));
  EXPECT_EQ(json["w"]["shape"], nlohmann::json({10, 10}));
  EXPECT_EQ(json["w"]["data_offsets"], nlohmann::json({0, 400}));
  EXPECT_EQ(json["__metadata__"]["averaging"], "7");
  EXPECT_EQ(in.remaining(), 400u);
  EXPECT_EQ(Value(), 99);
  EXPECT_EQ(Files(), 1u) << "no temporary file is left";
}

TEST_F(ModelFileTest, LeavesMomentsOut) {
  CheckpointInfo info = Info(7);
  info.tensors.push_back(info.tensors[0]);
  info.tensors[1].name = "optimizer.exp_avg.w";
  info.tensors[1].role = LinkRole::kOptimizerState;
  info.tensors[1].offset = 400;
  std::vector<float> values(200, 1);
  std::fill_n(values.begin(), 100, 99.0f);
  EXPECT_TRUE(*WriteModelFile(store, info, values));
  const std::string file = *ReadFile(path, 1 << 20);
  ByteReader in(AsBytes(file));
  const auto json = nlohmann::json::parse(AsString(in.Raw(in.U64())));
  EXPECT_EQ(json["w"]["data_offsets"], nlohmann::json({0, 400}));
  EXPECT_FALSE(json.contains("optimizer.exp_avg.w"));
  EXPECT_EQ(in.remaining(), 400u);
  EXPECT_EQ(Value(), 99);
}

TEST_F(ModelFileTest, WhatIsNoModelOfThisJobIsReplaced) {
  const std::string length("\x08\0\0\0\0\0\0\0", 8);
  for (const std::string& garbage :
       {std::string(), std::string("short"), length, length + "[1,2,34]", length + "{\"a\":1} ",
        std::string(40, '\xff')}) {
    std::ofstream(path) << garbage;
    EXPECT_TRUE(*Write(1, 5));
    EXPECT_EQ(Value(), 5);
  }
  EXPECT_TRUE(*Write(1, 6, "another"));
  EXPECT_EQ(Value(), 6);
}

// Each seals its checkpoint before it writes the model, as agents do.
TEST_F(ModelFileTest, WritersAtTheSameTimeLeaveTheNewest) {
  std::vector<std::thread> writers;
  for (uint64_t i = 1; i <= 8; ++i) {
    writers.emplace_back([&, i] {
      const std::vector<float> values(100, static_cast<float>(i));
      MetricRegistry own;
      CheckpointStore writer(folder.path(), "w-" + std::to_string(i), 8, Logger(), own);
      EXPECT_TRUE(writer.Write(Info(i), {.average = values}, {}).ok());
      EXPECT_TRUE(WriteModelFile(writer, Info(i), values).ok());
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(Value(), 8);
  EXPECT_EQ(Files(), 9u);
}

TEST_F(ModelFileTest, AFullDiskIsAnErrorInWordsAndTheOlderModelStays) {
  ASSERT_TRUE(*Write(1, 1));
  {
    const FileSizeLimit full(100);
    const auto written = Write(2, 2);
    EXPECT_TRUE(absl::IsResourceExhausted(written.status())) << written.status();
    EXPECT_NE(written.status().message().find("model.safetensors"), std::string::npos);
  }
  EXPECT_EQ(Value(), 1);
  EXPECT_EQ(Files(), 1u);
  EXPECT_TRUE(*Write(2, 2));
}

TEST_F(ModelFileTest, AFolderThatIsNotThereIsSaidSo) {
  CheckpointStore none(folder / "none", "w", 1, Logger(), metrics);
  EXPECT_TRUE(absl::IsNotFound(WriteModelFile(none, Info(1), std::vector<float>(100)).status()));
}

}  // namespace
}  // namespace crowdsurf::worker
