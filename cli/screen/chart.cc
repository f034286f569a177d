#include "cli/screen/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/screen/live_view.h"

namespace crowdsurf::cli {
namespace {

// The drawing's own units; the page scales it to its width.
constexpr double kWidth = 900, kHeight = 240;
constexpr double kLeft = 84, kRight = 14, kTop = 14, kBottom = 30;
constexpr double kRow = 22;

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string Label(double value) {
  if (value != 0 && std::abs(value) < 10 && value != std::floor(value)) {
    char text[32];
    std::snprintf(text, sizeof text, std::abs(value) < 0.1 ? "%.3f" : "%.2f", value);
    return text;
  }
  return Short(value);
}

struct Frame {
  double end;  // seconds
  double low = 0, high = 1;
  double bottom = kHeight - kBottom;

  double X(double seconds) const {
    // Clamped: a late point or a bar without an end stays inside the drawing.
    return kLeft + (kWidth - kLeft - kRight) * std::clamp(seconds / end, 0.0, 1.0);
  }
  double Y(double value) const {
    return bottom - (bottom - kTop) * std::clamp((value - low) / (high - low), 0.0, 1.0);
  }
};

std::string Line(double x1, double y1, double x2, double y2, const char* style) {
  return "<line class=\"" + std::string(style) + "\" x1=\"" + Number(x1) + "\" y1=\"" + Number(y1) +
         "\" x2=\"" + Number(x2) + "\" y2=\"" + Number(y2) + "\"/>";
}

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + Number(x) + "\" y=\"" + Number(y) + "\" text-anchor=\"" + anchor + "\">" +
         Escape(text) + "</text>";
}

// Screen readers tell the title and the description in place of the drawing (WAI-ARIA, role img).
std::string Open(const std::string& id, const std::string& title, const std::string& description,
                 double height) {
  return "<figure><figcaption>" + Escape(title) + "</figcaption><svg role=\"img\" viewBox=\"0 0 " +
         Number(kWidth) + " " + Number(height) + "\" aria-labelledby=\"" + id + "-t " + id +
         "-d\"><title id=\"" + id + "-t\">" + Escape(title) + "</title><desc id=\"" + id + "-d\">" +
         Escape(description) + "</desc>";
}

std::string TimeAxis(const Frame& frame) {
  std::string out;
  for (const double tick : RoundTicks(0, frame.end, 8)) {
    if (tick > frame.end) continue;
    out += Line(frame.X(tick), kTop, frame.X(tick), frame.bottom, "grid");
    out += Text(frame.X(tick), frame.bottom + 18, "middle", Span(tick));
  }
  return out;
}

std::string Legend(const std::vector<Series>& series) {
  std::string out;
  for (const Series& one : series) {
    if (one.name.empty()) continue;
    out += "<span class=\"key " + one.style + "\"></span>" + Escape(one.name) + " ";
  }
  return out.empty() ? out : "<p class=\"legend\">" + out + "</p>";
}

// Bounds of the values, widened to round ticks.
Frame FrameOf(const LineChart& chart) {
  Frame frame{std::max(chart.end, 1e-3)};
  double low = 1e300, high = -1e300;
  for (const Series& series : chart.series) {
    for (const auto& [at, value] : series.points) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  // Nothing was measured: an empty chart with an axis says so.
  if (low > high) low = 0, high = 1;
  if (chart.from_zero) low = std::min(0.0, low);
  // A flat line has no height to divide by.
  if (high - low < 1e-9) high = low + 1;
  const std::vector<double> ticks = RoundTicks(low, high, 5);
  frame.low = ticks.front();
  frame.high = ticks.back();
  return frame;
}

}  // namespace

std::string Escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // Control characters are not allowed in XML, and a model writes any byte.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
    }
  }
  return out;
}

std::vector<double> RoundTicks(double low, double high, int most) {
  // The power of ten below the wanted step, then the first of its multiples that is coarse enough.
  double step = std::pow(10, std::floor(std::log10((high - low) / most)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    const double candidate = step * factor;
    // Rounding outwards may add one tick, which is forgiven; the step must not be too fine.
    if (std::ceil(high / candidate) - std::floor(low / candidate) + 1 <= most + 1) {
      step = candidate;
      break;
    }
  }
  std::vector<double> ticks;
  for (double i = std::floor(low / step); i <= std::ceil(high / step - 1e-9); ++i) {
    ticks.push_back(i * step);
  }
  // An axis needs two ends, also where both bounds round to one.
  if (ticks.size() < 2) ticks.push_back(ticks.back() + step);
  return ticks;
}

std::string Draw(const LineChart& chart) {
  const Frame frame = FrameOf(chart);
  std::string out = Open(chart.id, chart.title, chart.description, kHeight) + TimeAxis(frame);
  for (const double tick : RoundTicks(frame.low, frame.high, 5)) {
    out += Line(kLeft, frame.Y(tick), kWidth - kRight, frame.Y(tick), "grid");
    out += Text(kLeft - 8, frame.Y(tick) + 4, "end", Label(tick));
  }
  for (const double mark : chart.marks) {
    out += Line(frame.X(mark), kTop, frame.X(mark), frame.bottom, "mark");
  }
  for (const Series& series : chart.series) {
    std::string points;
    for (const auto& [at, value] : series.points) {
      points += Number(frame.X(at)) + "," + Number(frame.Y(value)) + " ";
    }
    out += "<polyline class=\"line " + series.style + "\" points=\"" + points + "\"/>";
  }
  return out + "</svg>" + Legend(chart.series) + "</figure>\n";
}

std::string Draw(const Timeline& timeline) {
  Frame frame{std::max(timeline.end, 1e-3)};
  frame.bottom = kTop + kRow * static_cast<double>(timeline.rows.size());
  std::string out =
      Open(timeline.id, timeline.title, timeline.description, frame.bottom + kBottom) +
      TimeAxis(frame);
  const auto top = [](int row) { return kTop + kRow * row; };
  for (size_t row = 0; row < timeline.rows.size(); ++row) {
    out += Text(kLeft - 8, top(static_cast<int>(row)) + kRow * 0.68, "end", timeline.rows[row]);
  }
  for (const TimelineBar& bar : timeline.bars) {
    // At least one unit: a worker that lived for a moment is seen.
    const double x = frame.X(bar.begin), width = std::max(1.0, frame.X(bar.end) - x);
    out += "<rect class=\"bar " + bar.style + "\" x=\"" + Number(x) + "\" y=\"" +
           Number(top(bar.row) + 3) + "\" width=\"" + Number(width) + "\" height=\"" +
           Number(kRow - 6) + "\" rx=\"2\"><title>" + Escape(bar.tooltip) + "</title></rect>";
  }
  for (const TimelineMark& mark : timeline.marks) {
    const double x = frame.X(mark.at), y = top(mark.row) + kRow / 2;
    out += "<path class=\"cross\" d=\"M" + Number(x - 5) + " " + Number(y - 5) +
           "l10 10m0 -10l-10 10\"><title>" + Escape(mark.tooltip) + "</title></path>";
  }
  return out +
         "</svg><p class=\"legend\"><span class=\"key waiting\"></span>starting "
         "<span class=\"key training\"></span>training <span class=\"key leaving\"></span>told to "
         "leave <span class=\"key taken\"></span>taken</p></figure>\n";
}

}  // namespace crowdsurf::cli
