// What `crowdsurf run` says of a manifest before it starts anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run/run_session.h"

namespace crowdsurf::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

RunOptions Moshpit() {
  RunOptions options;
  options.manifest = "deploy/examples/strategies/moshpit.yaml";  // sets groupSize
  return options;
}

TEST(LoadJobProblemsTest, AFieldThatDoesNotActIsARemarkWithItsPlace) {
  std::vector<std::string> problems;
  const auto moshpit = LoadJob(Moshpit(), problems);
  ASSERT_TRUE(moshpit);
  EXPECT_THAT(moshpit->remarks, Not(Contains(HasSubstr("is ignored"))));
  RunOptions options = Moshpit();
  options.strategy = "AllReduce";
  const auto one_group = LoadJob(options, problems);
  ASSERT_TRUE(one_group);
  EXPECT_THAT(one_group->remarks,
              Contains(HasSubstr("moshpit.yaml:9: spec.averaging.groupSize: is ignored: AllReduce "
                                 "has one group of all workers")));
  EXPECT_THAT(problems, IsEmpty());
}

TEST(LoadJobProblemsTest, NeedsOfTheStrategyThatAreNotMetAreProblems) {
  RunOptions options = Moshpit();
  options.strategy = "AllReduce";
  options.workers = 65;
  std::vector<std::string> problems;
  EXPECT_FALSE(LoadJob(options, problems));
  EXPECT_THAT(problems, ElementsAre(HasSubstr("spec.maxReplicas: 65 is above 64")));
}

// `crowdsurf run -- train` gives the same words as `crowdsurf run train`.
TEST(LoadJobProblemsTest, AWordThatIsNoFileMayHaveBeenMeantAsAProgram) {
  const auto problem = [](const std::string& word) {
    RunOptions options;
    options.manifest = word;
    std::vector<std::string> problems;
    EXPECT_FALSE(LoadJob(options, problems));
    return problems.at(0);
  };
  EXPECT_EQ(problem("train"),
            "cannot read train: No such file or directory; a manifest ends in .yaml, and a command "
            "of one word is given by its path");
  EXPECT_EQ(problem("train.yaml"), "cannot read train.yaml: No such file or directory");
}

}  // namespace
}  // namespace crowdsurf::cli
