#include "cli/screen/html_parts.h"

#include <cmath>
#include <cstdio>

#include "cli/screen/chart.h"

namespace crowdsurf::cli {

std::string Figure(const std::optional<double>& number, int digits, const std::string& unit) {
  if (!number || !std::isfinite(*number)) return "–";
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, *number);
  return text + unit;
}

std::string Tile(const std::string& name, const std::string& value) {
  return "<div><dt>" + Escape(name) + "</dt><dd>" + Escape(value) + "</dd></div>";
}

}  // namespace crowdsurf::cli
