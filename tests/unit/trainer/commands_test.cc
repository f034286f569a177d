// The trainer's commands from end to end: what one writes, another reads back with the same
// figures.
#include "worker/trainer/commands.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace crowdsurf::trainer {
namespace {

namespace fs = std::filesystem;

const int kNoInterrupt = 0;

// The program's commands on a small text in a directory of its own; what they print is kept.
class CommandsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "commands-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    std::ofstream text(dir_ / "text");
    for (int i = 0; i < 400; ++i) text << "line " << i * 7919 % 1000 << " of a text\n%\n";
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string Path(const char* name) const { return (dir_ / name).string(); }

  int Run(const std::vector<std::string>& arguments, const int* interrupt = &kNoInterrupt,
          const TrainerEnvironment& environment = {}) {
    std::vector<const char*> argv = {"crowdsurf-trainer"};
    for (const std::string& a : arguments) argv.push_back(a.c_str());
    const auto options = ParseOptions(static_cast<int>(argv.size()), argv.data());
    EXPECT_TRUE(options.ok()) << options.status();
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = RunCommand(**options, environment, interrupt);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }

  fs::path dir_;
  std::string out_, err_;
};

TEST_F(CommandsTest, AModelIsTrainedSavedEvaluatedAndSampled) {
  ASSERT_EQ(Run({"charlm", "--text", Path("text"), "--hidden", "8", "--steps", "60", "--save",
                 Path("model"), "--json", Path("summary"), "--sample", "line"}),
            0)
      << err_;
  nlohmann::json summary;
  std::ifstream(Path("summary")) >> summary;
  EXPECT_EQ(summary["steps"], 60);
  EXPECT_EQ(summary["samples"], 60 * 8 * 64);
  EXPECT_EQ(summary["sample"].get<std::string>().substr(0, 4), "line");

  ASSERT_EQ(Run({"evaluate", "--model", Path("model"), "--text", Path("text")}), 0) << err_;
  const auto told = nlohmann::json::parse(out_);
  EXPECT_DOUBLE_EQ(told["heldout_bits_per_char"], summary["heldout_bits_per_char"]);
  EXPECT_DOUBLE_EQ(told["trigram_bits_per_char"], summary["trigram_bits_per_char"]);

  ASSERT_EQ(Run({"sample", "--model", Path("model"), "--sample", "line "}), 0) << err_;
  EXPECT_EQ(out_.substr(0, 5), "line ");
}

TEST_F(CommandsTest, TrainingGoesOnFromASavedModel) {
  const std::vector<std::string> mlp = {"mlp", "--steps", "50", "--evaluate-every", "0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), mlp.begin(), mlp.end());
    EXPECT_EQ(Run(more), 0) << err_;
    nlohmann::json summary;
    std::ifstream(Path("summary")) >> summary;
    return summary["heldout_loss"].get<double>();
  };
  const double first = with({"--save", Path("model"), "--json", Path("summary")});
  const double second = with({"--load", Path("model"), "--json", Path("summary")});
  EXPECT_LT(second, first);
}

TEST_F(CommandsTest, BadConfigurationEndsWithTwoAndSaysWhy) {
  EXPECT_EQ(Run({"charlm", "--text", Path("nothing")}), 2);
  EXPECT_NE(err_.find("no such file or directory"), std::string::npos);
  std::ofstream(Path("empty")).flush();
  EXPECT_EQ(Run({"charlm", "--text", Path("empty")}), 2);
  EXPECT_NE(err_.find("empty file"), std::string::npos);
  EXPECT_EQ(Run({"mlp", "--shards", "4"}), 2);
  EXPECT_NE(err_.find("--shard"), std::string::npos);
  TrainerEnvironment in_job;
  in_job.dir = Path("job");
  EXPECT_EQ(Run({"mlp", "--load", Path("model")}, &kNoInterrupt, in_job), 2);
  EXPECT_NE(err_.find("--load"), std::string::npos);
  EXPECT_EQ(Run({"evaluate", "--model", Path("text"), "--text", Path("text")}), 2);
  EXPECT_NE(err_.find("safetensors"), std::string::npos);
}

TEST_F(CommandsTest, AModelIsRefusedOnATextOfOtherCharacters) {
  ASSERT_EQ(Run({"charlm", "--text", Path("text"), "--hidden", "4", "--steps", "1", "--save",
                 Path("model")}),
            0);
  std::ofstream(Path("other")) << std::string(5000, 'a') << "bcd";
  EXPECT_EQ(Run({"evaluate", "--model", Path("model"), "--text", Path("other")}), 2);
  EXPECT_NE(err_.find("must be the text that it was trained on"), std::string::npos);
}

TEST_F(CommandsTest, AnInterruptEndsWithItsSignalAndStillSaves) {
  const int terminated = 15;
  EXPECT_EQ(Run({"mlp", "--save", Path("model")}, &terminated), 143);
  EXPECT_TRUE(fs::exists(Path("model")));
}

}  // namespace
}  // namespace crowdsurf::trainer
