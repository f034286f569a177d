#include "operator/core/job/rfc3339.h"

#include <cstdint>
#include <cstdio>

namespace crowdsurf::controller {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kDay = 86400;

// Days since 1970-01-01 of a date of the proleptic Gregorian calendar.
// 400 years are 146,097 days; 719,468 days lie between 0000-03-01 and 1970-01-01.
int64_t DaysFromCivil(int64_t year, int64_t month, int64_t day) {
  // Years begin in March here, so that the leap day is the last day of its year.
  year -= month <= 2;
  const int64_t era = year / 400;  // years here are positive
  const int64_t year_of_era = year - era * 400;
  const int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097 + day_of_era - 719468;
}

struct Civil {
  int64_t year, month, day;
};

Civil CivilFromDays(int64_t days) {
  days += 719468;
  const int64_t era = days / 146097;
  const int64_t day_of_era = days - era * 146097;
  const int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t shifted = (5 * day_of_year + 2) / 153;
  const int64_t month = shifted + (shifted < 10 ? 3 : -9);
  return {year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) / 5 + 1};
}

// The number of exactly `width` digits at `text`, moved past; -1 when they are not digits.
int64_t Digits(std::string_view& text, size_t width) {
  if (text.size() < width) return -1;
  int64_t value = 0;
  for (size_t i = 0; i < width; ++i) {
    if (text[i] < '0' || text[i] > '9') return -1;
    value = value * 10 + (text[i] - '0');
  }
  text.remove_prefix(width);
  return value;
}

bool Skip(std::string_view& text, char c) {
  if (text.empty() || text[0] != c) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string FormatInstant(WallTime time) {
  const int64_t seconds = time.nanoseconds() / kSecond;
  const int64_t micros = time.nanoseconds() % kSecond / 1000;
  const Civil date = CivilFromDays(seconds / kDay);
  const int64_t rest = seconds % kDay;
  char text[64];
  int length = std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d",
                             static_cast<int>(date.year), static_cast<int>(date.month),
                             static_cast<int>(date.day), static_cast<int>(rest / 3600),
                             static_cast<int>(rest / 60 % 60), static_cast<int>(rest % 60));
  std::string out(text, static_cast<size_t>(length));
  if (micros != 0) {
    length = std::snprintf(text, sizeof text, ".%06d", static_cast<int>(micros));
    out.append(text, static_cast<size_t>(length));
  }
  return out + "Z";
}

std::optional<WallTime> ParseInstant(std::string_view text) {
  const int64_t year = Digits(text, 4);
  // WallTime holds nanoseconds in 64 bits, which end in April 2262.
  if (year < 1970 || year > 2261 || !Skip(text, '-')) return std::nullopt;
  const int64_t month = Digits(text, 2);
  if (month < 1 || month > 12 || !Skip(text, '-')) return std::nullopt;
  const int64_t day = Digits(text, 2);
  if (day < 1 || day > 31 || !Skip(text, 'T')) return std::nullopt;
  const int64_t hour = Digits(text, 2);
  if (hour < 0 || hour > 23 || !Skip(text, ':')) return std::nullopt;
  const int64_t minute = Digits(text, 2);
  if (minute < 0 || minute > 59 || !Skip(text, ':')) return std::nullopt;
  const int64_t second = Digits(text, 2);
  // 60 is a leap second; it reads as the first second of the next minute.
  if (second < 0 || second > 60) return std::nullopt;
  int64_t nanos = 0;
  if (Skip(text, '.')) {
    int64_t scale = kSecond;
    // Digits beyond nanoseconds are read and count for nothing.
    while (!text.empty() && text[0] != 'Z') {
      const int64_t digit = Digits(text, 1);
      if (digit < 0) return std::nullopt;
      scale /= 10;
      nanos += digit * scale;
    }
  }
  if (text != "Z") return std::nullopt;
  const int64_t seconds =
      DaysFromCivil(year, month, day) * kDay + hour * 3600 + minute * 60 + second;
  return WallTime::FromNanoseconds(seconds * kSecond + nanos);
}

std::optional<WallTime> ParseHttpDate(std::string_view text) {
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  constexpr size_t kDayName = 5;  // "Mon, "
  if (text.size() < kDayName) return std::nullopt;
  text.remove_prefix(kDayName);
  const int64_t day = Digits(text, 2);
  if (!Skip(text, ' ')) return std::nullopt;
  const size_t month = kMonths.find(text.substr(0, 3));
  if (month == std::string_view::npos || month % 3 != 0) return std::nullopt;
  text.remove_prefix(3);
  if (!Skip(text, ' ')) return std::nullopt;
  const int64_t year = Digits(text, 4);
  if (!Skip(text, ' ') || text.size() < 12 || text.substr(8, 4) != " GMT") return std::nullopt;
  char out[64];
  std::snprintf(out, sizeof out, "%04d-%02d-%02dT%.8sZ", static_cast<int>(year),
                static_cast<int>(month / 3 + 1), static_cast<int>(day), text.data());
  return ParseInstant(out);
}

}  // namespace crowdsurf::controller
