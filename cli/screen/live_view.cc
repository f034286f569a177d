#include "cli/screen/live_view.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/text.h"

namespace crowdsurf::cli {
namespace {

constexpr size_t kMaxDrawn = 64;  // a grid of 8 x 8 fits a terminal
constexpr int kMin = 40;          // columns: narrower terminals wrap
constexpr int kCellWidth = 14;

enum class Ink { kPlain, kBold, kDim, kGreen, kYellow, kRed };

// A piece of a line; widths count letters, not escapes.
struct ScreenLine {
  std::string text;
  int columns = 0;
  bool color;
  int width;

  void Add(const std::string& raw, Ink ink = Ink::kPlain) {
    const std::string piece = ShownText(raw);  // states and news hold words of agents
    const int left = width - columns;
    // A terminal that wraps would shift all lines below, and the next draw would erase too little.
    if (left <= 0) return;
    std::string cut;  // by code points: every letter we draw is one column
    int letters = 0;
    for (size_t i = 0; i < piece.size(); ++i) {
      const bool begins = (static_cast<unsigned char>(piece[i]) & 0xC0) != 0x80;
      if (begins && letters == left) break;
      letters += begins;
      cut += piece[i];
    }
    columns += letters;
    static const std::map<Ink, const char*> kCodes = {{Ink::kBold, "1"},
                                                      {Ink::kDim, "2"},
                                                      {Ink::kGreen, "32"},
                                                      {Ink::kYellow, "33"},
                                                      {Ink::kRed, "31"}};
    const auto code = kCodes.find(ink);
    if (!color || code == kCodes.end()) {
      text += cut;
    } else {
      text += std::string("\x1b[") + code->second + "m" + cut + "\x1b[0m";
    }
  }
  void PadTo(int column) {
    if (column > columns) Add(std::string(static_cast<size_t>(column - columns), ' '));
  }
};

std::string Fixed(double number, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

Ink InkOf(const ScreenWorker& worker) {
  if (worker.state == "Training") return Ink::kGreen;
  if (worker.state == "Taken") return Ink::kRed;
  if (worker.state == "Leaving") return Ink::kYellow;
  return Ink::kDim;
}

std::string Mark(const ScreenWorker& worker) {
  if (worker.state == "Training") return worker.steward ? "★" : "●";
  if (worker.state == "Taken") return "✕";
  if (worker.state == "Done") return "✓";
  if (worker.state == "Leaving") return "▼";
  return "○";
}

void DrawWorker(ScreenLine& line, const ScreenWorker& worker, int column) {
  line.Add(Mark(worker) + " " + std::to_string(worker.index) + " ", InkOf(worker));
  if (worker.state == "Training") {
    line.Add(Fixed(worker.steps_per_second, 1) + "/s");
    if (worker.loss) line.Add(" " + Fixed(*worker.loss, 2), Ink::kDim);
  } else {
    line.Add(worker.state, Ink::kDim);
  }
  line.Add(" ");
  line.PadTo(column);
}

// Rows of the grid; workers without a cell follow on lines of their own.
void DrawGrid(const Screen& screen, std::vector<ScreenLine>& lines, const ScreenLine& empty) {
  // A row holds the workers that differ in the last coordinate alone: a group of the last axis.
  std::map<std::vector<int>, std::vector<const ScreenWorker*>> rows;
  std::vector<const ScreenWorker*> outside;
  size_t drawn = 0;
  for (const ScreenWorker& worker : screen.workers) {
    // The screen must not be longer than a terminal, which could not go back to its top.
    if (++drawn > kMaxDrawn) break;
    if (worker.cell.empty()) {
      outside.push_back(&worker);
    } else {
      rows[{worker.cell.begin(), worker.cell.end() - 1}].push_back(&worker);
    }
  }
  // Long cells: "● 3 12.5/s 2.31" is fifteen columns and a space.
  const int cell = std::max(kCellWidth, std::min(18, (empty.width - 4) / 4));
  const auto draw = [&](const std::string& head, std::vector<const ScreenWorker*> row) {
    // By seat, so that a worker that is replaced in its cell stays at its place on the screen.
    std::stable_sort(row.begin(), row.end(), [](const ScreenWorker* a, const ScreenWorker* b) {
      return a->cell < b->cell;
    });
    ScreenLine line = empty;
    line.Add("  " + head, Ink::kDim);
    for (const ScreenWorker* worker : row) {
      if (line.columns + cell > line.width) {
        lines.push_back(line);
        line = empty;
        line.Add("    ");
      }
      DrawWorker(line, *worker, line.columns + cell);
    }
    lines.push_back(line);
  };
  for (const auto& [key, row] : rows) draw("│ ", row);
  if (!outside.empty()) draw("  ", outside);
  if (screen.workers.size() > kMaxDrawn) {
    ScreenLine line = empty;
    line.Add("    and " + std::to_string(screen.workers.size() - kMaxDrawn) + " more", Ink::kDim);
    lines.push_back(line);
  }
}

void DrawBar(const Screen& screen, ScreenLine& line) {
  const std::string left = screen.seconds_left ? Span(*screen.seconds_left) + " left" : "";
  const std::string text = "  " + screen.target + (left.empty() ? "" : "   " + left);
  // The words are cut before the bar is: a bar of less than ten says nothing.
  const int room = std::max(10, std::min(40, line.width - static_cast<int>(text.size()) - 8));
  const double share = std::clamp(screen.progress.value_or(0), 0.0, 1.0);
  const int full = static_cast<int>(std::floor(share * room));
  std::string bar, rest;
  for (int i = 0; i < full; ++i) bar += "█";
  for (int i = full; i < room; ++i) rest += "░";
  line.Add(bar, Ink::kGreen);
  line.Add(rest, Ink::kDim);
  line.Add(" " + std::to_string(static_cast<int>(share * 100)) + "%", Ink::kBold);
  line.Add(text);
}

}  // namespace

std::string Short(double number) {
  if (number < 1000) return Fixed(number, number < 10 && number != std::floor(number) ? 1 : 0);
  // 999,950 would round to 1000.0k.
  if (number < 999950) return Fixed(number / 1e3, 1) + "k";
  if (number < 999.95e6) return Fixed(number / 1e6, 1) + "M";
  return Fixed(number / 1e9, 1) + "G";
}

std::string Span(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(0.0, std::round(seconds)));
  if (whole < 60) return std::to_string(whole) + "s";
  if (whole < 3600) return std::to_string(whole / 60) + "m " + std::to_string(whole % 60) + "s";
  return std::to_string(whole / 3600) + "h " + std::to_string(whole / 60 % 60) + "m";
}

std::string Printable(const std::string& text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80; };
  std::string kept;
  for (size_t i = 0; i < text.size();) {
    const unsigned lead = byte(i);
    // Lengths by lead byte: RFC 3629, section 4.
    size_t length = lead < 0x80   ? 1
                    : lead < 0xC2 ? 0
                    : lead < 0xE0 ? 2
                    : lead < 0xF0 ? 3
                    : lead < 0xF5 ? 4
                                  : 0;
    // A sequence that breaks off is no character; its lead byte alone goes, the rest is looked at
    // again.
    for (size_t k = 1; k < length; ++k)
      if (!continues(i + k)) length = 0;
    const bool control = length == 1 ? (lead < 0x20 && lead != '\n' && lead != '\t') || lead == 0x7F
                                     : lead == 0xC2 && byte(i + 1) < 0xA0;  // U+0080 to U+009F
    if (length > 0 && !control) kept.append(text, i, length);
    i += std::max<size_t>(1, length);  // a byte that belongs to no character is dropped
  }
  return kept;
}

std::vector<std::string> DrawScreen(const Screen& screen, ScreenLook look) {
  const ScreenLine empty{"", 0, look.color, std::max(kMin, look.width)};
  std::vector<ScreenLine> lines;
  ScreenLine head = empty;
  head.Add(screen.job, Ink::kBold);
  std::string grid;
  for (const int radix : screen.radices)
    grid += (grid.empty() ? "" : " x ") + std::to_string(radix);
  head.Add("  " + screen.strategy + (grid.empty() ? "" : " " + grid) + "  " + Span(screen.elapsed),
           Ink::kDim);
  lines.push_back(head);
  DrawGrid(screen, lines, empty);
  ScreenLine facts = empty;
  facts.Add(std::to_string(screen.training) + "/" + std::to_string(screen.wanted) + " workers",
            screen.training == screen.wanted ? Ink::kGreen : Ink::kYellow);
  facts.Add("  " + Short(screen.samples_per_second) + " samples/s");
  if (screen.loss) facts.Add("  loss " + Fixed(*screen.loss, 3));
  lines.push_back(facts);
  ScreenLine rounds = empty;
  rounds.Add("rounds " + Short(static_cast<double>(screen.rounds)) + ", " +
             std::to_string(screen.repaired) + " repaired, ");
  rounds.Add(std::to_string(screen.failed) + " failed",
             screen.failed > 0 ? Ink::kRed : Ink::kPlain);
  rounds.Add("  preemptions " + std::to_string(screen.preemptions));
  lines.push_back(rounds);
  ScreenLine bar = empty;
  DrawBar(screen, bar);
  lines.push_back(bar);
  for (const std::string& news : screen.news) {
    ScreenLine line = empty;
    line.Add("  " + news, Ink::kDim);
    lines.push_back(line);
  }
  if (!screen.ending.empty()) {
    ScreenLine line = empty;
    line.Add(screen.ending, Ink::kYellow);
    lines.push_back(line);
  }
  std::vector<std::string> text;
  text.reserve(lines.size());
  for (const ScreenLine& line : lines) text.push_back(line.text);
  return text;
}

std::vector<std::string> FitRows(std::vector<std::string> lines, size_t rows) {
  constexpr size_t kLeast = 3;
  rows = std::max(rows, kLeast);
  if (lines.size() <= rows) return lines;
  const size_t out = lines.size() - rows + 1;  // one more for the line that says so
  lines.erase(lines.begin() + 1, lines.begin() + static_cast<ptrdiff_t>(out));
  lines[1] = "  (" + std::to_string(out) + " lines more than the terminal has)";
  return lines;
}

std::string PlainLine(const Screen& screen) {
  std::string line = Span(screen.elapsed) + "  " + std::to_string(screen.training) + "/" +
                     std::to_string(screen.wanted) + " workers  " +
                     Short(screen.samples_per_second) + " samples/s";
  if (screen.loss) line += "  loss " + Fixed(*screen.loss, 3);
  line += "  rounds " + std::to_string(screen.rounds) + " (" + std::to_string(screen.repaired) +
          " repaired, " + std::to_string(screen.failed) + " failed)  preemptions " +
          std::to_string(screen.preemptions);
  if (screen.progress) {
    line += "  " + std::to_string(static_cast<int>(*screen.progress * 100)) + "%";
  }
  if (screen.seconds_left) line += "  " + Span(*screen.seconds_left) + " left";
  return line;
}

}  // namespace crowdsurf::cli
