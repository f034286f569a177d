// Items cut out of a list's bytes, compared with what a parser makes of the whole.
#include "operator/core/observe/list_scanner.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/rng.h"

namespace crowdsurf::controller {
namespace {

using Json = nlohmann::json;

struct Scanned {
  std::vector<std::string> items;
  std::string rest;
  bool whole = true;
};

// Fed in pieces of 1 to `most` bytes.
Scanned Scan(const std::string& bytes, Rng& rng, size_t most,
             size_t max_item = ListScanner::kMaxItem) {
  Scanned out;
  ListScanner scanner(
      [&](std::string_view item) {
        out.items.emplace_back(item);
        return true;
      },
      max_item);
  for (size_t at = 0; at < bytes.size() && out.whole;) {
    const size_t n = 1 + rng.Uniform(most);
    out.whole = scanner.Feed(std::string_view(bytes).substr(at, n));
    at += n;
  }
  out.rest = scanner.rest();
  return out;
}

const char* const kLists[] = {
    R"({"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":[1,{"c":2}]}]})",
    R"({"items":[],"metadata":{}})",
    R"( { "items" : [ {"x":"]},{\"\\"} , "text, with ] and }" , 7 , [1,2] , null ] , "z" : 1 } )",
    R"({"metadata":{"items":[1,2]},"items":[{"items":[3,{"items":[4]}]}],"more":{"items":[5]}})",
    R"({"note":"items","list":[1,2],"items":[8]})",
    R"({"it\u0065ms":[1],"itemsandmore":[2],"items":[3]})",
    R"({"items":{"a":[1]}})",
    "[[1,2]]",
    "7",
};

TEST(ListScannerTest, TheItemsAndTheRestAreWhatAParserSees) {
  Rng rng(1);
  for (const char* text : kLists) {
    Json list = Json::parse(text);
    std::vector<Json> expected;
    if (list.is_object() && list["items"].is_array()) {
      for (const Json& item : list["items"]) expected.push_back(item);
      list["items"] = Json::array();
    }
    for (int run = 0; run < 50; ++run) {
      const Scanned scanned = Scan(text, rng, 1 + rng.Uniform(30));
      EXPECT_TRUE(scanned.whole);
      ASSERT_EQ(scanned.items.size(), expected.size()) << text;
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(Json::parse(scanned.items[i]), expected[i]) << text;
      }
      if (std::string(text).find("u0065") == std::string::npos) {  // one name there is twice
        EXPECT_EQ(Json::parse(scanned.rest), list) << text;
      }
    }
  }
}

TEST(ListScannerTest, AnItemAboveTheBoundEndsTheScan) {
  Rng rng(2);
  const std::string fits = R"({"items":[")" + std::string(96, 'x') + R"("]})";
  EXPECT_TRUE(Scan(fits, rng, 20, 100).whole);
  const std::string large = R"({"items":[")" + std::string(200, 'x') + R"("]})";
  const Scanned scanned = Scan(large, rng, 20, 100);
  EXPECT_FALSE(scanned.whole);
  EXPECT_TRUE(scanned.items.empty());
  const std::string around(ListScanner::kMaxRest + 1, ' ');
  EXPECT_FALSE(Scan("{" + around + "}", rng, 1 << 16).whole);
}

TEST(ListScannerTest, WhoTakesTheItemsMayEndTheScan) {
  int seen = 0;
  ListScanner scanner([&](std::string_view) { return ++seen < 2; });
  EXPECT_FALSE(scanner.Feed(R"({"items":[1,2,3,4]})"));
  EXPECT_EQ(seen, 2);
}

TEST(ListScannerTest, MutatedBytesNeverCrash) {
  Rng rng(7);
  for (int run = 0; run < 20'000; ++run) {
    std::string bytes = kLists[rng.Uniform(std::size(kLists))];
    for (int i = 0; i < 4; ++i) {
      bytes[rng.Uniform(bytes.size())] = static_cast<char>(rng.Uniform(256));
    }
    const Scanned scanned = Scan(bytes, rng, 40);
    EXPECT_LE(scanned.rest.size(), bytes.size());
    EXPECT_LE(scanned.items.size(), bytes.size());
  }
}

}  // namespace
}  // namespace crowdsurf::controller
