#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/manifest/fields.h"

namespace crowdsurf::controller {
namespace {

TEST(ManualTest, ThePageOfTheManifestHasEveryFieldWithItsDefault) {
  std::ifstream file("docs/manifest.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  ASSERT_FALSE(page.empty());
  for (const Field& field : SpecFields()) {
    const std::string head = "| `" + std::string(field.path) + "` |";
    const size_t at = page.find(head);
    ASSERT_NE(at, std::string::npos) << head;
    const std::string row = page.substr(at, page.find('\n', at) - at);
    if (!field.fallback.empty()) {
      EXPECT_NE(row.find("`" + std::string(field.fallback) + "`"), std::string::npos) << row;
    }
    const std::vector<std::string_view> built = SplitChoices(field.built);
    for (const std::string_view choice : SplitChoices(field.choices)) {
      EXPECT_NE(row.find(choice), std::string::npos) << row;
      const bool known_only =
          !built.empty() && std::find(built.begin(), built.end(), choice) == built.end();
      const std::string italic = "*" + std::string(choice) + "*";
      EXPECT_EQ(row.find(italic) != std::string::npos, known_only) << choice << ": " << row;
    }
  }
}

}  // namespace
}  // namespace crowdsurf::controller
