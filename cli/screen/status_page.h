// StatusPage: a run that is going on, as a page for a browser.
//
// Pure functions of what is known, like the screen on a terminal (live_view.h). The page has no
// script and loads nothing; it asks the browser to load it again every few seconds. Plain HTML that
// a screen reader reads in order: headings, a list of figures, a progress bar with its number
// beside it, a table of workers with a caption; states are words, never colours alone. Any thread.
// Bounds: those of its input.
#pragma once

#include <string>

#include "cli/screen/live_view.h"

namespace crowdsurf::cli {

inline constexpr int kStatusRefresh_s = 2;  // seconds: the figures change twice a second

std::string StatusHtml(const Screen& screen);

}  // namespace crowdsurf::cli
