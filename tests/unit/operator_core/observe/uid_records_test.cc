#include "operator/core/observe/uid_records.h"

#include <gtest/gtest.h>

#include <vector>

namespace crowdsurf::controller {
namespace {

TEST(UidRecordsTest, ARecordDiesWithItsUidAndNotWithItsName) {
  UidRecords<std::vector<int>> records;
  records.Of("team/a", "1").push_back(7);
  EXPECT_EQ(records.Of("team/a", "1"), std::vector<int>{7});
  EXPECT_EQ(records.Find("team/a", "2"), nullptr) << "another job of the name";
  EXPECT_NE(records.Find("team/a", "1"), nullptr) << "a question forgets nothing";
  EXPECT_TRUE(records.Of("team/a", "2").empty());
  EXPECT_EQ(records.Find("team/a", "1"), nullptr);
  records.Of("team/b", "1").push_back(8);
  records.Forget("team/a");
  EXPECT_EQ(records.Find("team/a", "2"), nullptr);
  size_t left = 0;
  records.ForEach([&](const std::vector<int>& record) { left += record.size(); });
  EXPECT_EQ(left, 1u);
  EXPECT_TRUE(records.Of("team/a", "2").empty()) << "also where the uid comes again";
}

}  // namespace
}  // namespace crowdsurf::controller
