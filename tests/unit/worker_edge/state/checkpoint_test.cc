// Checkpoints in a real folder: what is written comes back, and what is flipped, cut, left behind
// or of another job does not.
#include "worker/edge/state/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/edge/files.h"
#include "base/rng.h"
#include "tests/unit/worker_edge/state/file_size_limit.h"
#include "tests/unit/worker_edge/state/scratch_folder.h"

namespace crowdsurf::worker {
namespace {

struct CheckpointTest : testing::Test {
  CheckpointInfo Info(uint64_t number) {
    LinkTensor t;
    t.name = "w";
    t.shape = {10, 10};
    const auto g = LayOutLink({t}, {LinkRole::kParameter});
    CheckpointInfo info;
    info.job = "charlm";
    info.averaging = AveragingId(number);
    info.job_samples = 1000.0 * static_cast<double>(number);
    info.job_seconds = 12.5;
    info.view_epoch = 3;
    info.schema = g->schema;
    info.tensors = g->tensors;
    return info;
  }
  Status Write(uint64_t number) {
    const std::vector<float> average(100, static_cast<float>(number));
    return store.Write(Info(number), {.average = average}, Bytes(33, 5));
  }
  // By a lineage of the job that checkpoints every minute.
  void WriteOf(const std::string& lineage, uint64_t number, Duration interval = Seconds(60)) {
    const std::vector<float> average(100, static_cast<float>(number));
    ASSERT_TRUE(store
                    .Write(Info(number), {.average = average}, {},
                           {.lineage = lineage, .interval = interval})
                    .ok());
  }
  void Age(const std::string& lineage, Duration by) {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      if (LineageOfCheckpoint(entry.path().filename().string()) != lineage) continue;
      std::filesystem::last_write_time(
          entry.path(), entry.last_write_time() - std::chrono::nanoseconds(by.nanoseconds()));
    }
  }
  std::vector<std::string> Names() { return CheckpointsIn(folder.path()); }
  std::string Path(uint64_t number) {
    std::string digits = std::to_string(number);
    return folder / ("checkpoint-" + std::string(20 - digits.size(), '0') + digits + ".crowdsurf");
  }
  size_t Files() {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder.path()),
                                             std::filesystem::directory_iterator()));
  }

  StatusOr<FoundCheckpoint> Restore(CheckpointStore& from, const std::string& job,
                                    std::vector<float>& average) {
    return from.Restore({.job = job, .schema = Info(1).schema, .elements = average.size()}, average,
                        [this](uint64_t bytes) { return HeldState::Make(room, bytes); });
  }
  StatusOr<FoundCheckpoint> Restore(CheckpointStore& from, const std::string& job) {
    std::vector<float> average(100);
    return Restore(from, job, average);
  }
  uint64_t Newest() { return Restore(store, "charlm")->info.averaging.value(); }

  ScratchFolder folder, memory;
  LinkFolder room = *LinkFolder::Open(memory.path());
  MetricRegistry metrics;
  CheckpointStore store{folder.path(), "charlm-0-0", 2, Logger(), metrics};
};

TEST_F(CheckpointTest, WhatIsWrittenIsFoundAndLoaded) {
  ASSERT_TRUE(Write(7).ok());
  std::vector<float> average(100);
  const auto found = Restore(store, "charlm", average);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->info.averaging, AveragingId(7));
  EXPECT_EQ(found->info.job_samples, 7000);
  EXPECT_EQ(found->info.tensors, Info(7).tensors);
  ASSERT_TRUE(found->opaque.has_value());
  const ByteView opaque = found->opaque->state->bytes();
  EXPECT_EQ(Bytes(opaque.begin(), opaque.end()), Bytes(33, 5));
  EXPECT_EQ(found->opaque->hash, Sha256(Bytes(33, 5)));
  EXPECT_EQ(average, std::vector<float>(100, 7));
}

TEST_F(CheckpointTest, TheNewestAreRetainedAndTheHighestNumberWins) {
  for (const uint64_t n : {2U, 10U, 9U}) ASSERT_TRUE(Write(n).ok());
  EXPECT_EQ(Files(), 2u);
  EXPECT_EQ(Newest(), 10u);
  EXPECT_FALSE(std::filesystem::exists(Path(2)));
}

// Workers that train apart share a folder, and their numbers are equal.
TEST_F(CheckpointTest, TwoLineagesNeitherReplaceNorRemoveEachOthersCheckpoints) {
  for (uint64_t n = 1; n <= 5; ++n) {
    WriteOf("aaaa", n);
    WriteOf("bbbb", n);
  }
  EXPECT_EQ(Names(),
            (std::vector<std::string>{
                CheckpointName(AveragingId(5), "bbbb"), CheckpointName(AveragingId(5), "aaaa"),
                CheckpointName(AveragingId(4), "bbbb"), CheckpointName(AveragingId(4), "aaaa")}));
  // One that has come further does not remove the other's either.
  for (uint64_t n = 100; n <= 105; ++n) WriteOf("aaaa", n);
  EXPECT_EQ(Names().size(), 4u);
  EXPECT_EQ(Names().back(), CheckpointName(AveragingId(4), "bbbb"));
  EXPECT_EQ(Newest(), 105u);
}

// A job that is resumed, or branches, is of another lineage each time: the folder must not grow.
TEST_F(CheckpointTest, TheCheckpointsOfALineageThatHasEndedGo) {
  for (const uint64_t n : {1U, 2U, 3U}) WriteOf("aaaa", n);
  Age("aaaa", Seconds(601));
  WriteOf("bbbb", 4);
  EXPECT_EQ(Names(), (std::vector<std::string>{CheckpointName(AveragingId(4), "bbbb"),
                                               CheckpointName(AveragingId(3), "aaaa")}))
      << "two are kept in all";
  WriteOf("bbbb", 5);
  EXPECT_EQ(Names(), (std::vector<std::string>{CheckpointName(AveragingId(5), "bbbb"),
                                               CheckpointName(AveragingId(4), "bbbb")}));
}

TEST_F(CheckpointTest, ALineageThatWritesRarelyHasNotEnded) {
  for (const uint64_t n : {1U, 2U}) WriteOf("aaaa", n, Seconds(3600));
  Age("aaaa", Seconds(3 * 3600 - 60));
  for (const uint64_t n : {8U, 9U}) WriteOf("bbbb", n, Seconds(3600));
  EXPECT_EQ(Names().size(), 4u);
  Age("aaaa", Seconds(120));
  WriteOf("bbbb", 10, Seconds(3600));
  EXPECT_EQ(Names().size(), 2u);
}

TEST_F(CheckpointTest, TheLineageStandsInTheName) {
  EXPECT_EQ(LineageOfCheckpoint(CheckpointName(AveragingId(7), "0a1b2c3d")), "0a1b2c3d");
  EXPECT_EQ(LineageOfCheckpoint(CheckpointName(AveragingId(UINT64_MAX), "x")), "x");
  for (const char* none :
       {"checkpoint-00000000000000000007.crowdsurf", "checkpoint-7.crowdsurf",
        "checkpoint-.crowdsurf", "", "checkpoint-00000000000000000007-.crowdsurf"})
    EXPECT_EQ(LineageOfCheckpoint(none), "") << none;
}

TEST_F(CheckpointTest, AVelocityComesBackAndIsVerifiedAsTheRestIs) {
  ASSERT_TRUE(Write(1).ok());
  const std::vector<float> average(100, 2), velocity(100, -3);
  ASSERT_TRUE(store.Write(Info(2), {.average = average, .velocity = velocity}, Bytes(33, 5)).ok());
  std::vector<float> read(100);
  const auto found = Restore(store, "charlm", read);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(read, average);
  ASSERT_NE(found->velocity, nullptr);
  EXPECT_TRUE(std::ranges::equal(*found->velocity, velocity));
  ASSERT_TRUE(found->opaque.has_value());
  EXPECT_EQ(found->opaque->state->bytes().size(), 33u);
  const std::string good = *ReadFile(Path(2), 1 << 20);
  for (size_t i = 0; i < good.size(); i += 3) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (i < 12 ? 1 : 4));
    ASSERT_TRUE(WriteFileAtomically(Path(2), bad).ok());
    ASSERT_EQ(Newest(), 1u) << "byte " << i;
  }
}

// An agent from before there were velocities reads what a job without one writes.
TEST_F(CheckpointTest, WithoutAVelocityAFileIsOfTheVersionThatItWas) {
  ASSERT_TRUE(Write(1).ok());
  ASSERT_TRUE(Write(2).ok());
  EXPECT_EQ((*ReadFile(Path(2), 1 << 20))[8], 2);
  std::vector<float> average(100);
  EXPECT_EQ(Restore(store, "charlm", average)->velocity, nullptr);
}

// Leases make a file of version 4, with a velocity and without one.
struct CheckpointOfLeasesTest : CheckpointTest, testing::WithParamInterface<bool> {
  CheckpointOfLeasesTest() {
    EXPECT_TRUE(Write(1).ok());
    info.ledger = Bytes(27, 9);
    EXPECT_TRUE(store.Write(info, {.average = average, .velocity = velocity}, Bytes(33, 5)).ok());
    file = *ReadFile(Path(2), 1 << 20);
  }
  void Replace(const std::string& content) {
    EXPECT_TRUE(WriteFileAtomically(Path(2), content).ok());
  }
  CheckpointInfo info = Info(2);
  const std::vector<float> average = std::vector<float>(100, 2);
  const std::vector<float> velocity = std::vector<float>(GetParam() ? 100 : 0, -3);
  std::string file;
};

TEST_P(CheckpointOfLeasesTest, ALedgerComesBackAndAllThatIsBesideIt) {
  EXPECT_EQ(file[8], 4);
  std::vector<float> read(100);
  const auto found = Restore(store, "charlm", read);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->info.averaging, AveragingId(2));
  EXPECT_EQ(found->info.ledger, Bytes(27, 9));
  EXPECT_EQ(read, average);
  ASSERT_EQ(found->velocity != nullptr, GetParam());
  EXPECT_TRUE(!GetParam() || std::ranges::equal(*found->velocity, velocity));
  ASSERT_TRUE(found->opaque.has_value());
  EXPECT_EQ(found->opaque->hash, Sha256(Bytes(33, 5)));
  const auto verified = VerifyCheckpoint(Path(2));
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_EQ(verified->info.ledger, Bytes(27, 9));
  EXPECT_TRUE(VerifyCheckpoint(Path(1))->info.ledger.empty()) << "of a job that deals none";
}

TEST_P(CheckpointOfLeasesTest, OneThatIsCutOrFlippedIsNotBelieved) {
  for (size_t size = 0; size < file.size(); size += 5) {
    Replace(file.substr(0, size));
    ASSERT_EQ(Newest(), 1u) << "the first " << size << " bytes";
  }
  Replace(file.substr(0, file.size() - 1));
  EXPECT_EQ(Newest(), 1u);
  for (size_t i = 0; i < file.size(); i += 3) {
    std::string bad = file;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    Replace(bad);
    ASSERT_EQ(Newest(), 1u) << "byte " << i;
  }
  // The version is under no hash. The header of another one does not fit.
  for (const char version : {'\x01', '\x02', '\x03', '\x05'}) {
    std::string other = file;
    other[8] = version;
    Replace(other);
    EXPECT_EQ(Newest(), 1u) << "version " << int{version};
  }
  Replace(file);
  EXPECT_EQ(Newest(), 2u);
}

INSTANTIATE_TEST_SUITE_P(WithAVelocityAndWithout, CheckpointOfLeasesTest, testing::Bool());

TEST_F(CheckpointTest, AnyFlippedBitIsFoundAndTheOlderOneIsTaken) {
  ASSERT_TRUE(Write(1).ok());
  ASSERT_TRUE(Write(2).ok());
  const std::string good = *ReadFile(Path(2), 1 << 20);
  for (size_t i = 0; i < good.size(); i += 3) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    ASSERT_TRUE(WriteFileAtomically(Path(2), bad).ok());
    ASSERT_EQ(Newest(), 1u) << "byte " << i;
  }
  EXPECT_GT(metrics.Value("crowdsurf_checkpoint_unreadable_total"), 0);
}

TEST_F(CheckpointTest, ATruncatedFileIsSkipped) {
  ASSERT_TRUE(Write(1).ok());
  ASSERT_TRUE(Write(2).ok());
  for (const size_t size : {0U, 1U, 51U, 52U, 100U, 400U}) {
    std::filesystem::resize_file(Path(2), size);
    EXPECT_EQ(Newest(), 1u) << size;
    ASSERT_TRUE(Write(2).ok());
  }
}

TEST_F(CheckpointTest, AnotherJobsCheckpointIsNotOurs) {
  ASSERT_TRUE(Write(1).ok());
  EXPECT_TRUE(absl::IsNotFound(Restore(store, "other").status()));
}

TEST_F(CheckpointTest, OneOfAnotherModelIsLeftAlone) {
  ASSERT_TRUE(Write(1).ok());
  std::vector<float> average(99);
  EXPECT_TRUE(absl::IsFailedPrecondition(Restore(store, "charlm", average).status()));
  EXPECT_EQ(metrics.Value("crowdsurf_checkpoint_unreadable_total"), 0);
}

TEST_F(CheckpointTest, WithoutRoomForTheOpaqueStateTheAverageIsRestored) {
  ASSERT_TRUE(Write(1).ok());
  std::vector<float> average(100);
  const auto found =
      store.Restore({.job = "charlm", .schema = Info(1).schema, .elements = 100}, average,
                    [](uint64_t) { return absl::ResourceExhaustedError("full"); });
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->opaque.has_value());
  EXPECT_EQ(average, std::vector<float>(100, 1));
}

TEST_F(CheckpointTest, AFolderThatIsNotThereIsSaidSo) {
  CheckpointStore none(folder / "none", "w", 1, Logger(), metrics);
  EXPECT_TRUE(absl::IsNotFound(none.Write(Info(1), {.average = std::vector<float>(100, 1)}, {})));
  EXPECT_TRUE(absl::IsNotFound(Restore(none, "charlm").status()));
  EXPECT_EQ(metrics.Value("crowdsurf_checkpoint_writes_total", {{"result", "failed"}}), 1);
}

TEST_F(CheckpointTest, LeftOversOfAWriterThatDiedAreNeverRestored) {
  ASSERT_TRUE(Write(1).ok());
  std::filesystem::copy_file(Path(1), Path(5) + ".other.new");
  EXPECT_EQ(Newest(), 1u);
}

TEST_F(CheckpointTest, AFullDiskIsAnErrorInWordsThatLeavesNothingBehind) {
  ASSERT_TRUE(Write(1).ok());
  {
    const FileSizeLimit full(100);
    const Status status = Write(2);
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_NE(status.message().find(folder / "checkpoint-"), std::string::npos) << status;
  }
  EXPECT_EQ(metrics.Value("crowdsurf_checkpoint_writes_total", {{"result", "failed"}}), 1);
  EXPECT_EQ(Files(), 1u) << "the older one, and nothing half written";
  EXPECT_EQ(Newest(), 1u);
  EXPECT_TRUE(Write(2).ok()) << "with space again all is well";
}

}  // namespace
}  // namespace crowdsurf::worker
