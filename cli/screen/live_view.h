// LiveView: the screen of a run as lines of text, and the plain lines of a run without a terminal.
//
// Pure functions of what is known: no clock, no terminal. Widths are columns; colour is ANSI and
// only where asked. Bounded: at most 64 workers are drawn one by one, the rest are a number. Any
// thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace crowdsurf::cli {

struct ScreenWorker {
  std::string name;
  int index = 0;
  std::string state;      // Waiting, Starting, Joining, Training, Hung, Leaving, Taken, Done
  std::vector<int> cell;  // empty: not in the grid yet
  double samples_per_second = 0;
  double steps_per_second = 0;
  std::optional<double> loss;
  bool steward = false;
  std::string http;  // host:port of its agent; empty: not known
};

struct Screen {
  std::string job, strategy;
  double elapsed = 0;              // seconds since training began
  std::optional<double> progress;  // 0..1
  std::optional<double> seconds_left;
  std::string target;  // "4.1M of 8.0M samples"
  std::vector<int> radices;
  std::vector<ScreenWorker> workers;
  int wanted = 0, training = 0;
  double samples_per_second = 0;
  std::optional<double> loss;
  uint64_t rounds = 0, repaired = 0, failed = 0, preemptions = 0;
  std::vector<std::string> news;  // the last few, oldest first
  std::string ending;             // non-empty: what is being waited for
};

struct ScreenLook {
  int width = 80;  // columns
  bool color = false;
};

// The whole screen, one string a line, none wider than `look.width`.
std::vector<std::string> DrawScreen(const Screen& screen, ScreenLook look);

// At most `rows` of the lines, at least three: the first, and the last ones. A line in between says
// how many are left out.
std::vector<std::string> FitRows(std::vector<std::string> lines, size_t rows);

// One line for a log: "12s  8/8 workers  1203 samples/s  loss 2.31  rounds 96 (4 repaired) ...".
std::string PlainLine(const Screen& screen);

// 1234567 -> "1.2M"; 950 -> "950".
std::string Short(double number);
// 75 -> "1m 15s".
std::string Span(double seconds);
// `text` (UTF-8) without what would move a terminal's cursor or change its state: control
// characters but tab and line end are dropped. A model writes any byte that its text holds.
std::string Printable(const std::string& text);

}  // namespace crowdsurf::cli
