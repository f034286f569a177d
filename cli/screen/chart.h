// Chart: line charts and timelines as inline SVG.
//
// Pure. Each chart has a title and a description for screen readers, draws with CSS classes of the
// page that holds it (report_html.cc), and labels its axes with round numbers. Any thread. Bounds:
// those of its input.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace crowdsurf::cli {

struct Series {
  std::string name;                               // in the legend; empty: none
  std::string style;                              // CSS class: "one", "two"
  std::vector<std::pair<double, double>> points;  // (seconds since the start, value), sorted
};

struct LineChart {
  std::string id;     // unique in the page
  std::string title;  // with the unit: "Seconds a round takes"
  std::string description;
  bool from_zero = true;
  std::vector<Series> series;
  std::vector<double> marks;  // vertical lines: preemptions, in seconds
  double end = 1;             // of the horizontal axis, in seconds
};

std::string Draw(const LineChart& chart);

struct TimelineBar {
  int row = 0;
  double begin = 0, end = 0;
  std::string style;  // "waiting", "training", "leaving"
  std::string tooltip;
};

struct TimelineMark {
  int row = 0;
  double at = 0;
  std::string tooltip;
};

struct Timeline {
  std::string id, title, description;
  std::vector<std::string> rows;  // labels, from the top
  std::vector<TimelineBar> bars;
  std::vector<TimelineMark> marks;
  double end = 1;
};

std::string Draw(const Timeline& timeline);

// &, <, >, " and ' as entities; control characters as spaces.
std::string Escape(const std::string& text);

// Values at round steps (1, 2, 5 times a power of ten) that cover [low, high], at most `most`.
std::vector<double> RoundTicks(double low, double high, int most);

}  // namespace crowdsurf::cli
