// Checkpoints and models on a volume that other jobs, other models and trainers write to.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/edge/files.h"
#include "tests/unit/worker_edge/state/scratch_folder.h"
#include "tests/unit/worker_edge/state/sealed_store.h"
#include "worker/edge/state/model_file.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kElements = 100;

struct SharedVolumeTest : testing::Test {
  CheckpointInfo Info(uint64_t number, const std::string& job, const std::string& tensor) const {
    LinkTensor t;
    t.name = tensor;
    t.shape = {10, 10};
    const auto table = LayOutLink({t}, {LinkRole::kParameter});
    CheckpointInfo info;
    info.job = job;
    info.averaging = AveragingId(number);
    info.schema = table->schema;
    info.tensors = table->tensors;
    return info;
  }
  void Write(CheckpointStore& store, uint64_t number, const std::string& job = "charlm",
             const std::string& tensor = "w") const {
    const std::vector<float> average(kElements, static_cast<float>(number));
    ASSERT_TRUE(store.Write(Info(number, job, tensor), {.average = average}, Bytes(33, 5)).ok());
  }
  StatusOr<FoundCheckpoint> Restore(CheckpointStore& store, const std::string& job = "charlm",
                                    const std::string& tensor = "w") {
    std::vector<float> average(kElements);
    return store.Restore({.job = job, .schema = Info(1, job, tensor).schema, .elements = kElements},
                         average, [this](uint64_t bytes) { return HeldState::Make(room, bytes); });
  }
  uint64_t Newest(CheckpointStore& store, const std::string& job = "charlm",
                  const std::string& tensor = "w") {
    const auto found = Restore(store, job, tensor);
    return found.ok() ? found->info.averaging.value() : 0;
  }
  std::string Path(uint64_t number) const { return folder / CheckpointName(AveragingId(number)); }
  std::vector<uint64_t> There() const {
    std::vector<uint64_t> numbers;
    for (const std::string& name : CheckpointsIn(folder.path()))
      numbers.push_back(std::stoull(name.substr(name.find('-') + 1)));
    return numbers;
  }
  float Model() const {
    const std::string file = *ReadFile(folder / "model.safetensors", 1 << 20);
    float last;
    memcpy(&last, file.data() + file.size() - 4, 4);
    return last;
  }

  ScratchFolder folder, memory;
  LinkFolder room = *LinkFolder::Open(memory.path());
  const dht::TestAuthority ca;
  MetricRegistry metrics;
  CheckpointStore plain{folder.path(), "planter", 99, Logger(), metrics};  // it knows no seals
};

TEST_F(SharedVolumeTest, OfTwoJobsInAFolderEachPrunesItsOwn) {
  SealedStore a(folder.path(), ca, "a"), b(folder.path(), ca, "b");
  for (const uint64_t n : {1000, 1010, 1020}) Write(a.store, n, "a");
  for (const uint64_t n : {5, 10, 15}) Write(b.store, n, "b");
  EXPECT_EQ(There(), (std::vector<uint64_t>{1020, 1010, 15, 10}));
  EXPECT_EQ(Newest(a.store, "a"), 1020U);
  EXPECT_EQ(Newest(b.store, "b"), 15U);
}

TEST_F(SharedVolumeTest, AnOlderModelOfTheJobIsNeitherPrunedNorInTheWay) {
  SealedStore agent(folder.path(), ca);
  for (const uint64_t n : {1000, 1010}) Write(agent.store, n, "charlm", "old");
  EXPECT_TRUE(absl::IsFailedPrecondition(Restore(agent.store).status()));
  for (const uint64_t n : {5, 10, 15}) Write(agent.store, n, "charlm", "new");
  EXPECT_EQ(There(), (std::vector<uint64_t>{1010, 1000, 15, 10}));
  EXPECT_EQ(Newest(agent.store, "charlm", "new"), 15U);
}

// A worker that is alone averages more often than the many, and trains less.
TEST_F(SharedVolumeTest, OfTwoLineagesTheOneThatTrainedMoreIsResumed) {
  SealedStore many(folder.path(), ca), alone(folder.path(), ca);
  const std::vector<float> average(kElements, 1);
  const auto write = [&](SealedStore& agent, uint64_t number, double samples,
                         const std::string& lineage) {
    CheckpointInfo info = Info(number, "charlm", "w");
    info.job_samples = samples;
    ASSERT_TRUE(agent.store.Write(info, {.average = average}, {}, {.lineage = lineage}).ok());
  };
  write(many, 40, 9000, "aaaaaaaa");
  write(alone, 400, 3000, "bbbbbbbb");
  EXPECT_EQ(Newest(many.store), 40U);
  EXPECT_EQ(Newest(alone.store), 40U);
  CheckpointInfo last = Info(401, "charlm", "w");
  last.job_samples = 3010;
  const auto newer = alone.store.NewerThan(last);
  ASSERT_TRUE(newer) << "the model of the job is the loner's";
  EXPECT_EQ(newer->info.averaging, AveragingId(40));
  last = Info(41, "charlm", "w");
  last.job_samples = 9100;
  EXPECT_FALSE(many.store.NewerThan(last));
}

// A trainer can make a file whose hashes agree. It cannot make a seal.
TEST_F(SharedVolumeTest, APlantedCheckpointIsPassedOverAndMakesNobodyPrune) {
  SealedStore agent(folder.path(), ca);
  const dht::TestAuthority other;
  SealedStore stranger(folder.path(), other), tenant(folder.path(), ca, "another");
  Write(plain, 90);
  Write(stranger.store, 91);
  {  // another job's agent, under the same CA, in this job's name
    const std::vector<float> average(kElements, 92);
    ASSERT_TRUE(tenant.store.Write(Info(92, "charlm", "w"), {.average = average}, {}).ok());
  }
  for (const uint64_t n : {1, 2, 3}) Write(agent.store, n);
  // A seal is of one head, and lies beside its file.
  Write(plain, 93);
  std::filesystem::copy_file(CheckpointSeals::NameOf(Path(3)), CheckpointSeals::NameOf(Path(93)));
  Write(agent.store, 4);
  EXPECT_EQ(There(), (std::vector<uint64_t>{93, 92, 91, 90, 4, 3}));
  EXPECT_EQ(Newest(agent.store), 4U);
  EXPECT_EQ(agent.metrics.Value("crowdsurf_checkpoint_unsealed_total"), 4);
  EXPECT_EQ(agent.metrics.Value("crowdsurf_checkpoint_unreadable_total"), 0);
}

TEST_F(SharedVolumeTest, ASealOutlivesItsCertificate) {
  SealedStore yesterday(folder.path(), ca, "charlm", -10), today(folder.path(), ca);
  Write(yesterday.store, 5);
  Write(plain, 6);
  EXPECT_EQ(Newest(today.store), 5U);
}

// A job that is made anew has another CA. Its volume is all that it has of its earlier life.
TEST_F(SharedVolumeTest, WhereNothingIsSealedTheNewestIsTaken) {
  const dht::TestAuthority earlier;
  SealedStore before(folder.path(), earlier), agent(folder.path(), ca);
  for (const uint64_t n : {7, 8}) Write(before.store, n);
  EXPECT_EQ(Newest(agent.store), 8U);
  for (const uint64_t n : {9, 10}) Write(agent.store, n);
  EXPECT_EQ(There(), (std::vector<uint64_t>{10, 9})) << "those are superfluous now";
}

TEST_F(SharedVolumeTest, TheNumberThatCountsIsInTheHead) {
  SealedStore agent(folder.path(), ca);
  Write(agent.store, 3);
  std::filesystem::rename(Path(3), Path(99));
  std::filesystem::rename(CheckpointSeals::NameOf(Path(3)), CheckpointSeals::NameOf(Path(99)));
  Write(agent.store, 4);
  EXPECT_EQ(Newest(agent.store), 4U);
}

TEST_F(SharedVolumeTest, AFileThatShrinksWhileItIsReadIsAnError) {
  Write(plain, 1);
  const auto file = CheckpointFile::Open(Path(1));
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<float> average(kElements);
  EXPECT_TRUE(file->ReadAverage(average).ok());
  std::filesystem::resize_file(Path(1), std::filesystem::file_size(Path(1)) - 20);
  EXPECT_TRUE(file->ReadAverage(average).ok()) << "its end alone is gone";
  EXPECT_TRUE(absl::IsDataLoss(file->ReadOpaque(nullptr)));
  std::filesystem::resize_file(Path(1), 300);
  EXPECT_TRUE(absl::IsDataLoss(file->ReadAverage(average)));
  EXPECT_TRUE(absl::IsDataLoss(file->Verify()));
}

TEST_F(SharedVolumeTest, APlantedModelIsReplacedUnread) {
  SealedStore agent(folder.path(), ca);
  Write(plain, 50);  // nor does a planted checkpoint count
  const std::string metadata =
      R"({"__metadata__":{"averaging":"18446744073709551615","job":"charlm"}})";
  const std::string length(1, static_cast<char>(metadata.size()));
  for (const std::string& planted : {length + std::string(7, '\0') + metadata,
                                     std::string("\0\0\1\0\0\0\0\0", 8).append(65536, '[')}) {
    std::ofstream(folder / "model.safetensors", std::ios::binary) << planted;
    EXPECT_TRUE(
        *WriteModelFile(agent.store, Info(5, "charlm", "w"), std::vector<float>(kElements, 5)));
    EXPECT_EQ(Model(), 5);
  }
}

TEST_F(SharedVolumeTest, OfTwoStewardsTheNewerModelStandsWhoeverWritesLast) {
  SealedStore one(folder.path(), ca), two(folder.path(), ca);
  const auto end = [&](SealedStore& steward, uint64_t number) {
    Write(steward.store, number);
    return *WriteModelFile(steward.store, Info(number, "charlm", "w"),
                           std::vector<float>(kElements, static_cast<float>(number)));
  };
  EXPECT_TRUE(end(one, 7));
  EXPECT_TRUE(end(two, 8));
  EXPECT_EQ(Model(), 8);
  EXPECT_FALSE(end(one, 7));
  EXPECT_EQ(Model(), 8);
  // One that is broken is nobody's model.
  std::filesystem::resize_file(Path(8), std::filesystem::file_size(Path(8)) - 1);
  EXPECT_TRUE(end(one, 7));
  EXPECT_EQ(Model(), 7);
}

}  // namespace
}  // namespace crowdsurf::worker
