// Scalars against what kubectl 1.34 makes of them (`kubectl create --dry-run=client -o json`).
#include "operator/core/job/yaml_scalar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(YamlScalarTest, APlainScalarIsWhatKubectlReads) {
  const std::pair<const char*, const char*> cases[] = {
      {"0777", "511"},
      {"010", "8"},
      {"0x10", "16"},
      {"-0x10", "-16"},
      {"0b11", "3"},
      {"0o17", "15"},
      {"1_000", "1000"},
      {"+4", "4"},
      {"-7", "-7"},
      {"08", "8.0"},
      {"0", "0"},
      {"-0", "0"},
      {"yes", "true"},
      {"No", "false"},
      {"on", "true"},
      {"OFF", "false"},
      {"y", "true"},
      {"N", "false"},
      {"True", "true"},
      {"~", "null"},
      {"NULL", "null"},
      {"1.5e3", "1500.0"},
      {".5", "0.5"},
      {"5.", "5.0"},
      {"+.5", "0.5"},
      {"1_0.5", "10.5"},
      {"9223372036854775807", "9223372036854775807"},
      {"18446744073709551615", "18446744073709551615"},
      {"-9223372036854775808", "-9223372036854775808"}};
  for (const auto& [text, wanted] : cases) {
    const auto value = ReadPlainScalar(text);
    ASSERT_TRUE(value.ok()) << text << ": " << value.status();
    EXPECT_EQ(*value, json::parse(wanted)) << text;
    EXPECT_EQ(value->is_number_float(), json::parse(wanted).is_number_float()) << text;
  }
}

TEST(YamlScalarTest, WhatOnlyLooksLikeANumberIsText) {
  for (const char* text :
       {"1:30", "2026-11-24", "1.2.3", "+-5",   "-",     "+",  ".",   "e5", "+e5", "0x",
        "0xg",  "0b2",        "1e",    "1e999", "0x1p3", "_1", "yEs", "oN", "inf", "nan"}) {
    const auto value = ReadPlainScalar(text);
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(*value, json(text));
  }
  EXPECT_FALSE(ReadPlainScalar(".inf").ok());
  EXPECT_FALSE(ReadPlainScalar("-.INF").ok());
  EXPECT_FALSE(ReadPlainScalar(".NaN").ok());
}

TEST(YamlScalarTest, ATagSaysWhatAScalarIs) {
  const auto read = [](const char* kind, const char* text) {
    return ReadTaggedScalar(std::string("tag:yaml.org,2002:") + kind, text);
  };
  EXPECT_EQ(*read("str", "1"), json("1"));
  EXPECT_EQ(*read("bool", "no"), json(false));
  EXPECT_EQ(*read("int", "0x10"), json(16));
  EXPECT_EQ(*read("float", "3"), json(3));
  EXPECT_THAT(read("int", "x").status().message(), HasSubstr("x is no !!int"));
  EXPECT_THAT(read("binary", "aGk=").status().message(), HasSubstr("is not known"));
  EXPECT_THAT(ReadTaggedScalar("!mine", "x").status().message(), HasSubstr("!mine is not known"));
}

TEST(YamlScalarTest, JsonsPairsOfEscapesAreOneCharacter) {
  EXPECT_EQ(WithoutSurrogatePairs(R"({"a": "\ud83d\ude80 \u00e9"})"),
            "{\"a\": \"\xF0\x9F\x9A\x80 \\u00e9\"}");
  EXPECT_EQ(WithoutSurrogatePairs(R"( {"a": "\uDBFF\uDFFF"})"), " {\"a\": \"\xF4\x8F\xBF\xBF\"}");
  EXPECT_EQ(WithoutSurrogatePairs(R"({"a": "\\ud83d\\ude80"})"), R"({"a": "\\ud83d\\ude80"})")
      << "a backslash and letters";
  EXPECT_EQ(WithoutSurrogatePairs(R"({"a": "\ud83d"})"), R"({"a": "\ud83d"})") << "no JSON";
  EXPECT_EQ(WithoutSurrogatePairs(R"(a: '\ud83d\ude80')"), R"(a: '\ud83d\ude80')");
}

}  // namespace
}  // namespace crowdsurf::controller
