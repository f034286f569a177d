#include "operator/core/job/yaml_scalar.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "base/text.h"

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

constexpr std::string_view kTags = "tag:yaml.org,2002:";
constexpr size_t kEscape = 6;    // bytes of \uXXXX
constexpr size_t kLongest = 60;  // of a value in a message, bytes
constexpr int kHexadecimal = 16;

bool IsOneOf(std::string_view text, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), text) != names.end();
}

// As strconv.ParseInt with base 0: the prefix says the base, and a mere 0 in front says octal.
std::optional<json> Whole(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  int base = 10;
  if (text.size() > 1 && text[0] == '0') {
    const char letter = text[1];
    base = IsOneOf({&letter, 1}, {"x", "X"})   ? kHexadecimal
           : IsOneOf({&letter, 1}, {"b", "B"}) ? 2
                                               : 8;
    text.remove_prefix(base != 8 || letter == 'o' || letter == 'O' ? 2 : 1);
  }
  uint64_t number = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || at != text.data() + text.size()) return std::nullopt;
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!negative) return number <= kMost ? json(static_cast<int64_t>(number)) : json(number);
  if (number > kMost + 1) return std::nullopt;
  return json(static_cast<int64_t>(~number + 1));
}

// [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?, which leaves out "inf", "nan" and 0x1p3.
bool LooksLikeFloat(std::string_view text) {
  const auto digits = [&] {
    const size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(count);
    return count > 0;
  };
  const auto skip = [&](std::string_view letters) {
    if (text.empty() || letters.find(text[0]) == std::string_view::npos) return false;
    text.remove_prefix(1);
    return true;
  };
  skip("+-");
  bool some = digits();
  if (skip(".")) some = digits() || some;
  if (!some) return false;
  if (text.empty()) return true;
  if (!skip("eE")) return false;
  skip("+-");
  return digits() && text.empty();
}

std::optional<json> Fraction(std::string_view text) {
  if (!LooksLikeFloat(text)) return std::nullopt;
  if (text[0] == '+') text.remove_prefix(1);  // from_chars takes no plus sign
  double number = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || at != text.data() + text.size()) return std::nullopt;
  return json(number);
}

void AppendUtf8(uint32_t character, std::string& out) {
  out += static_cast<char>(0xF0 | character >> 18);
  for (const int shift : {12, 6, 0}) out += static_cast<char>(0x80 | (character >> shift & 0x3F));
}

// The code unit of the \uXXXX that `text` begins with; 0 when it begins with none.
uint32_t EscapedUnit(std::string_view text) {
  if (text.size() < kEscape || text[0] != '\\' || text[1] != 'u') return 0;
  uint32_t unit = 0;
  const auto [at, error] =
      std::from_chars(text.data() + 2, text.data() + kEscape, unit, kHexadecimal);
  return error == std::errc() && at == text.data() + kEscape ? unit : 0;
}

}  // namespace

StatusOr<json> ReadPlainScalar(const std::string& text) {
  if (IsOneOf(text, {"", "~", "null", "Null", "NULL"})) return json(nullptr);
  if (IsOneOf(text, {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})) {
    return json(true);
  }
  if (IsOneOf(text, {"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})) {
    return json(false);
  }
  if (IsOneOf(text, {".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF",
                     ".nan", ".NaN", ".NAN"})) {
    return absl::InvalidArgumentError(absl::StrCat(text, " is no number that JSON can hold"));
  }
  const char first = text[0];
  if (first != '+' && first != '-' && first != '.' && (first < '0' || first > '9')) {
    return json(text);
  }
  std::string plain = text;
  if (first != '.') plain.erase(std::remove(plain.begin(), plain.end(), '_'), plain.end());
  if (std::optional<json> whole = Whole(plain)) return std::move(*whole);
  if (std::optional<json> fraction = Fraction(plain)) return std::move(*fraction);
  return json(text);
}

StatusOr<json> ReadTaggedScalar(const std::string& tag, const std::string& text) {
  const std::string_view kind =
      std::string_view(tag).starts_with(kTags) ? std::string_view(tag).substr(kTags.size()) : "";
  if (kind == "str") return json(text);
  ASSIGN_OR_RETURN(json value, ReadPlainScalar(text));
  const bool fits = (kind == "int" && value.is_number_integer()) ||
                    (kind == "float" && value.is_number()) ||
                    (kind == "bool" && value.is_boolean()) || (kind == "null" && value.is_null());
  if (fits) return value;
  return absl::InvalidArgumentError(
      IsOneOf(kind, {"int", "float", "bool", "null"})
          ? absl::StrCat(ShownText(text, kLongest), " is no !!", std::string(kind))
          : absl::StrCat("the tag ", ShownText(tag, kLongest), " is not known"));
}

std::string WithoutSurrogatePairs(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{' || !json::accept(text)) {
    return std::string(text);
  }
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '\\') {
      out += text[at++];
      continue;
    }
    const uint32_t high = EscapedUnit(text.substr(at));
    if (high >= 0xD800 && high < 0xDC00) {
      // Valid JSON has the low one behind it.
      const uint32_t low = EscapedUnit(text.substr(at + kEscape));
      AppendUtf8(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00), out);
      at += 2 * kEscape;
      continue;
    }
    out += text.substr(at, 2);  // also of \\, whose second is no beginning of an escape
    at += 2;
  }
  return out;
}

}  // namespace crowdsurf::controller
