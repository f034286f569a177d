#include "cli/report/averaging_words.h"

#include <array>
#include <cstdio>

namespace crowdsurf::cli {
namespace {

// By kAveragingPartNames; what stands before the seconds and behind them.
struct Words {
  const char *before, *after;
};
constexpr std::array<Words, controller::kAveragingPartNames.size()> kWords = {
    Words{": waited ", " for the trainer"},
    {" and ", " for others"},
    {"; sent ", ""},
    {", received ", ""},
    {", folded ", ""},
    {", copied ", ""}};

std::string InSeconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f s", seconds < 0.1 ? 4 : 3, seconds);
  return text;
}

}  // namespace

std::string AveragingWords(const controller::SummaryAveragings& averagings) {
  if (averagings.number == 0) return "none was timed";
  const auto number = static_cast<double>(averagings.number);
  std::string out = InSeconds(averagings.whole / number);
  for (size_t part = 0; part < averagings.parts.size(); ++part)
    out += kWords[part].before + InSeconds(averagings.parts[part] / number) + kWords[part].after;
  return out + " (work overlaps)";
}

}  // namespace crowdsurf::cli
