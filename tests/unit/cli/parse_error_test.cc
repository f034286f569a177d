// What a command line that is mistyped is told.
#include "cli/parse_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crowdsurf::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ParseErrorTest : public ::testing::Test {
 protected:
  ParseErrorTest() {
    app_.require_subcommand(1);
    CLI::App* run = app_.add_subcommand("run", "");
    run->add_option("JOB.yaml", manifest_)->required();
    run->add_option("--duration", duration_);
    run->add_option("--workers", workers_);
    CLI::App* simulate = app_.add_subcommand("simulate", "");
    simulate->require_subcommand(1);
    simulate->add_subcommand("chaos", "")->add_option("--seeds", workers_);
  }

  // What is said to `crowdsurf LINE`; empty: it is right.
  std::string Told(const std::string& line) {
    try {
      app_.parse(line);
      return {};
    } catch (const CLI::ParseError& error) {
      return Explain(app_, error);
    }
  }

  CLI::App app_{"", "crowdsurf"};
  std::string manifest_, duration_;
  int workers_ = 0;
};

TEST_F(ParseErrorTest, AMisspeltCommandIsNamedWithTheOneThatWasMeant) {
  EXPECT_THAT(UnknownCommand(app_, "simulte").value(),
              AllOf(HasSubstr("simulte is not a command"), HasSubstr("did you mean simulate?")));
  EXPECT_THAT(UnknownCommand(app_, "describe").value(), HasSubstr("there are run, simulate"));
}

TEST_F(ParseErrorTest, ACommandOrAnOptionIsNoUnknownCommand) {
  for (const char* word : {"run", "simulate", "--help", "-h", ""})
    EXPECT_EQ(UnknownCommand(app_, word), std::nullopt) << word;
}

TEST_F(ParseErrorTest, AMisspeltOptionIsNamedWithoutItsValue) {
  EXPECT_THAT(Told("run job.yaml --duraton 5s"),
              AllOf(HasSubstr("--duraton: unknown option of run"),
                    HasSubstr("did you mean --duration?"), Not(HasSubstr("5s"))));
  EXPECT_THAT(Told("run job.yaml --duraton=5s"),
              AllOf(HasSubstr("--duraton: unknown"), Not(HasSubstr("5s"))));
  EXPECT_THAT(Told("simulate chaos --sees 3"),
              AllOf(HasSubstr("unknown option of chaos"), HasSubstr("did you mean --seeds?")));
  EXPECT_THAT(Told("run job.yaml --qqqqqqq"), Not(HasSubstr("did you mean")));
}

TEST_F(ParseErrorTest, AMisspeltCommandBelowACommandIsNamedToo) {
  EXPECT_THAT(Told("simulate chos --seeds 3"),
              AllOf(HasSubstr("chos is not a command"), HasSubstr("did you mean chaos?")));
}

TEST_F(ParseErrorTest, OtherMistakesKeepTheParsersWords) {
  EXPECT_THAT(Told("run job.yaml --workers abc"),
              AllOf(HasSubstr("--workers"), HasSubstr("abc"), Not(HasSubstr("unknown"))));
  EXPECT_THAT(Told("run"), HasSubstr("JOB.yaml"));
  EXPECT_EQ(Told("run job.yaml --workers 3"), "");
}

}  // namespace
}  // namespace crowdsurf::cli
