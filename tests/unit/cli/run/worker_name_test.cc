#include "cli/run/worker_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crowdsurf::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<WorkerName> Names(std::initializer_list<const char*> texts) {
  std::vector<WorkerName> names;
  for (const char* text : texts) names.push_back(*ParseWorkerName(text));
  return names;
}

std::vector<std::string> Chosen(const std::string& wanted, Which which = Which::kNewest) {
  const auto chosen = ChooseWorkers(
      Names({"job-0-1", "job-10-1", "job-0-2", "job-1-1", "job-0-10"}), wanted, which);
  std::vector<std::string> texts;
  if (!chosen.ok()) return {std::string(chosen.status().message())};
  for (const WorkerName& name : *chosen) texts.push_back(name.text());
  return texts;
}

TEST(WorkerNameTest, IsReadFromItsEnd) {
  const auto name = ParseWorkerName("my-job-7-3-12");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->job, "my-job-7");
  EXPECT_EQ(name->index, 3);
  EXPECT_EQ(name->incarnation, 12);
  EXPECT_EQ(name->text(), "my-job-7-3-12");
  for (const char* no : {"", "-", "--", "job", "job-1", "job-1-", "job--1", "-1-1", "job-1-x",
                         "job-x-1", "job-1-+2", "job-1-99999999999"}) {
    EXPECT_FALSE(ParseWorkerName(no)) << no;
  }
}

TEST(ChooseWorkersTest, TheNewestOfEachIndexByNumber) {
  EXPECT_THAT(Chosen(""), ElementsAre("job-0-10", "job-1-1", "job-10-1"));
  EXPECT_THAT(Chosen("0"), ElementsAre("job-0-10"));
  EXPECT_THAT(Chosen("job-0-2"), ElementsAre("job-0-2"));
}

TEST(ChooseWorkersTest, ThePredecessorOfEachThatHasOne) {
  EXPECT_THAT(Chosen("", Which::kPrevious), ElementsAre("job-0-2"));
  EXPECT_THAT(Chosen("0", Which::kPrevious), ElementsAre("job-0-2"));
  EXPECT_THAT(Chosen("job-0-2", Which::kPrevious), ElementsAre("job-0-1"));
}

TEST(ChooseWorkersTest, WhatIsNotThereIsSaidWithWhatIs) {
  const std::string all = "there are job-0-1, job-0-2, job-0-10, job-1-1, job-10-1";
  EXPECT_THAT(Chosen("job-0-3"), ElementsAre("no worker job-0-3; " + all));
  EXPECT_THAT(Chosen("7"), ElementsAre("no worker 7; " + all));
  EXPECT_THAT(Chosen("other-0-1"), ElementsAre("no worker other-0-1; " + all));
  EXPECT_THAT(Chosen("1", Which::kPrevious), ElementsAre("worker 1 has no predecessor; " + all));
  EXPECT_EQ(ChooseWorkers({}, "", Which::kNewest).status().message(), "no worker; there is none");
  EXPECT_THAT(ChooseWorkers(Names({"job-0-1"}), "", Which::kPrevious).status().message(),
              HasSubstr("no worker has a predecessor"));
}

TEST(ListedTest, IsBounded) {
  EXPECT_EQ(Listed({}), "");
  EXPECT_EQ(Listed({"a", "b"}), "a, b");
  EXPECT_EQ(Listed({"a", "b", "c", "d"}, 2), "a, b and 2 more");
}

}  // namespace
}  // namespace crowdsurf::cli
