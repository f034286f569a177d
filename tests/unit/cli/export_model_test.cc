// Checkpoints as models: what is written is read back by the format's own rules, and a checkpoint
// that is cut or flipped anywhere gives none.
#include "cli/export_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/edge/files.h"
#include "cli/run/state_dir.h"
#include "tests/unit/worker_edge/state/file_size_limit.h"
#include "worker/edge/state/checkpoint_file.h"

namespace crowdsurf::cli {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using worker::LinkTensor;

class ExportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    home_ = ::testing::TempDir() + "export_test" + std::to_string(getpid());
    setenv("XDG_STATE_HOME", home_.c_str(), 1);
    folder_ = DefaultStateDir("charlm") + "/checkpoint";
    std::filesystem::create_directories(folder_);
    request_ = {"charlm", "", home_ + "/model.safetensors"};
  }
  void TearDown() override {
    unsetenv("XDG_STATE_HOME");
    std::filesystem::remove_all(home_);
  }

  static ByteView FloatBytes(const std::vector<float>& values) {
    return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)};
  }
  // A bias that is averaged, a buffer that is not, a matrix; values are 100 * number and up. With
  // `moments` an averaged moment has the buffer's place.
  std::string Write(uint64_t number, const std::string& job = "charlm", bool moments = false) {
    LinkTensor bias, buffer, matrix;
    bias.name = "bias";
    bias.shape = {2};
    buffer.name = "mean";
    buffer.shape = {5};
    buffer.role = worker::LinkRole::kBuffer;
    matrix.name = "weight";
    matrix.shape = {2, 3};
    if (moments) buffer.role = worker::LinkRole::kOptimizerState;
    std::vector<worker::LinkRole> roles = {worker::LinkRole::kParameter};
    if (moments) roles.push_back(worker::LinkRole::kOptimizerState);
    const auto laid = worker::LayOutLink({bias, buffer, matrix}, roles);
    std::vector<float> average(laid->elements), velocity(laid->elements, 1);
    for (size_t i = 0; i < average.size(); ++i) average[i] = static_cast<float>(100 * number + i);
    const Bytes opaque(33, 5);
    worker::CheckpointHeader header;
    header.info.job = job;
    header.info.averaging = worker::AveragingId(number);
    header.info.job_samples = 1000;
    header.info.tensors = laid->tensors;
    header.info.elements = average.size();
    header.info.opaque_bytes = opaque.size();
    header.average_hash = Sha256(FloatBytes(average));
    header.velocity_hash = Sha256(FloatBytes(velocity));
    header.opaque_hash = Sha256(opaque);
    if (change_) change_(header.info);
    const std::string path = folder_ + "/" + worker::CheckpointName(header.info.averaging);
    EXPECT_TRUE(WriteFileAtomically(path, {EncodeCheckpointHead(header).bytes, FloatBytes(average),
                                           FloatBytes(velocity), opaque})
                    .ok());
    return path;
  }
  std::string Words() { return std::string(ExportModel(request_).status().message()); }
  std::string Model() { return ReadFile(home_ + "/model.safetensors").value_or(""); }

  std::string home_, folder_;
  ExportRequest request_;
  std::function<void(worker::CheckpointInfo&)> change_;  // of what Write writes; under its hash
};

TEST_F(ExportTest, TheNewestCheckpointIsAModelByTheFormatsRules) {
  Write(9);
  Write(10);
  const auto done = ExportModel(request_);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->averaging, 10u);
  EXPECT_EQ(done->parameters, 8u);
  EXPECT_EQ(done->job, "charlm");
  const std::string model = Model();
  uint64_t length = 0;
  std::memcpy(&length, model.data(), sizeof length);
  const json header = json::parse(model.substr(8, length));
  EXPECT_EQ(header["__metadata__"],
            (json{{"format", "pt"}, {"job", "charlm"}, {"averaging", "10"}}));
  EXPECT_EQ(header["bias"], (json{{"dtype", "F32"}, {"shape", {2}}, {"data_offsets", {0, 8}}}));
  EXPECT_EQ(header["weight"],
            (json{{"dtype", "F32"}, {"shape", {2, 3}}, {"data_offsets", {8, 32}}}));
  EXPECT_FALSE(header.contains("mean")) << "it is not averaged";
  ASSERT_EQ(model.size(), 8 + length + 32);
  float last = 0;
  std::memcpy(&last, model.data() + model.size() - sizeof last, sizeof last);
  EXPECT_EQ(last, 1007);
}

TEST_F(ExportTest, MomentsStayInTheCheckpoint) {
  Write(10, "charlm", /*moments=*/true);
  const auto done = ExportModel(request_);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->parameters, 8u);
  const std::string model = Model();
  uint64_t length = 0;
  std::memcpy(&length, model.data(), sizeof length);
  const json header = json::parse(model.substr(8, length));
  EXPECT_FALSE(header.contains("mean"));
  EXPECT_EQ(header["weight"]["data_offsets"], (json{8, 32}));
  ASSERT_EQ(model.size(), 8 + length + 32);
  float first = 0;
  std::memcpy(&first, model.data() + 8 + length + 8, sizeof first);
  EXPECT_EQ(first, 1007) << "behind the bias and the moment's five values";
}

TEST_F(ExportTest, AFileAFolderAndAStateDirectoryAreFound) {
  const std::string older = Write(9);
  Write(10);
  request_.from = older;
  EXPECT_EQ(ExportModel(request_)->averaging, 9u);
  request_ = {folder_, "", home_ + "/two"};
  EXPECT_EQ(ExportModel(request_)->averaging, 10u);
  std::filesystem::create_directories(home_ + "/out");
  request_ = {"charlm", DefaultStateDir("charlm"), home_ + "/out"};
  EXPECT_EQ(ExportModel(request_)->path, home_ + "/out/model.safetensors");
  Write(11, "another");
  request_.out = home_ + "/three";
  EXPECT_EQ(ExportModel(request_)->averaging, 10u) << "several jobs may share a folder";
}

TEST_F(ExportTest, AHalfCheckpointIsRefusedAndTheOneBeforeItIsNamed) {
  const std::string older = Write(9), path = Write(10);
  const std::string whole = ReadFile(path).value();
  for (const size_t bytes :
       {size_t{0}, size_t{7}, size_t{51}, size_t{60}, whole.size() - 60, whole.size() - 1}) {
    ASSERT_TRUE(WriteFileAtomically(path, whole.substr(0, bytes)).ok());
    const Status refused = ExportModel(request_).status();
    EXPECT_TRUE(absl::IsDataLoss(refused)) << bytes << refused;
    EXPECT_THAT(Words(), HasSubstr("is cut short: it has " + std::to_string(bytes) + " of "));
    EXPECT_THAT(Words(), EndsWith("; the one before it is " + older));
  }
  EXPECT_EQ(Model(), "");
  ASSERT_TRUE(WriteFileAtomically(path, whole + "x").ok());
  EXPECT_THAT(Words(), HasSubstr("is broken: it is longer than it says"));
}

TEST_F(ExportTest, AByteThatIsFlippedAnywhereIsFound) {
  const std::string path = Write(10);
  const std::string whole = ReadFile(path).value();
  request_.from = path;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    ASSERT_TRUE(WriteFileAtomically(path, flipped).ok());
    ASSERT_FALSE(ExportModel(request_).ok()) << "byte " << at;
  }
  EXPECT_EQ(Model(), "");
}

// Its hashes agree: whoever made it meant it so.
TEST_F(ExportTest, ACheckpointOfWhichNoModelCanBeMadeIsRefused) {
  const auto named = [](const std::string& name) {
    return [name](worker::CheckpointInfo& info) { info.tensors[2].name = name; };
  };
  const std::vector<std::function<void(worker::CheckpointInfo&)>> changes = {
      named("bias"),
      named("__metadata__"),
      named("\xff\xfe"),
      named(""),
      [](auto& info) { info.tensors[2].offset += 4; },
      [](auto& info) { info.job_samples = std::nan(""); },
      [](auto& info) { info.job_samples = -1; }};
  for (const auto& change : changes) {
    change_ = change;
    Write(10);
    EXPECT_THAT(Words(), HasSubstr(" is broken: its ")) << &change - changes.data();
    EXPECT_EQ(Model(), "");
  }
}

TEST_F(ExportTest, WhatIsNotThereIsSaidInPlainWords) {
  EXPECT_EQ(Words(), "there is no checkpoint in " + folder_);
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/model.safetensors", "x").ok());
  EXPECT_EQ(Words(), "there is no checkpoint in " + folder_ + "; the job's model is " + folder_ +
                         "/model.safetensors");
  request_.from = folder_ + "/model.safetensors";
  EXPECT_THAT(Words(), HasSubstr("is cut short"));
  ASSERT_TRUE(WriteFileAtomically(request_.from, "some other file").ok());
  EXPECT_EQ(Words(), request_.from + " is no checkpoint");
  request_.from = folder_ + "/none.crowdsurf";
  EXPECT_EQ(Words(), "there is no file " + request_.from);
  std::filesystem::create_directories(DefaultStateDir("charlm") + "/workers");
  request_.from = "charm";
  EXPECT_EQ(Words(), "no job charm has run on this machine (there are charlm)");
  request_ = {"charlm", home_ + "/none", request_.out};
  EXPECT_EQ(Words(), home_ + "/none is not the state directory of a run");
}

TEST_F(ExportTest, AnotherFileIsNeverReplaced) {
  Write(10);
  ASSERT_TRUE(WriteFileAtomically(request_.out, "mine").ok());
  EXPECT_EQ(Words(), request_.out + " is there already");
  EXPECT_EQ(Model(), "mine");
}

TEST_F(ExportTest, AFullDiskLeavesNothingBehind) {
  Write(10);
  {
    const worker::FileSizeLimit limit(100);
    const Status full = ExportModel(request_).status();
    EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
    EXPECT_THAT(std::string(full.message()), HasSubstr("cannot write " + request_.out));
  }
  EXPECT_EQ(Model(), "");
  EXPECT_FALSE(std::filesystem::exists(request_.out + ".new"));
  request_.out = home_ + "/none/model.safetensors";
  EXPECT_THAT(Words(), HasSubstr("cannot write " + request_.out));
}

}  // namespace
}  // namespace crowdsurf::cli
