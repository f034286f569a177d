// What the pages of a run are made of, live (status_page.h) and at its end (report_html.cc):
// figures and tiles.
//
// Pure; every text given is escaped. Any thread.
#pragma once

#include <optional>
#include <string>

namespace crowdsurf::cli {

// "1.25 s"; a dash where there is no number, or one that is not finite.
std::string Figure(const std::optional<double>& number, int digits, const std::string& unit = "");

// A name and a value of <dl class="tiles">.
std::string Tile(const std::string& name, const std::string& value);

}  // namespace crowdsurf::cli
