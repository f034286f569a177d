// Terminal: a screen that is redrawn in place, or plain lines where there is no terminal.
//
// Honours NO_COLOR and the width at every draw; never draws more often than five times a second;
// what is printed between draws scrolls away above the screen. Single thread.
#pragma once

#include <string>
#include <vector>

#include "base/time.h"

namespace crowdsurf::cli {

// Whether the descriptor is a terminal that shows colours, and the user has not set NO_COLOR.
bool TakesColor(int output);

class Terminal {
 public:
  explicit Terminal(int output = 1);
  ~Terminal();  // leaves the last screen, shows the cursor
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool interactive() const { return interactive_; }
  bool color() const { return color_; }
  int width() const;   // columns
  int height() const;  // rows

  bool DueAt(Time now) const { return now >= next_draw_; }
  // Pre: fewer lines than height(), or the next draw cannot go back to the first (FitRows).
  void Draw(Time now, const std::vector<std::string>& lines);
  // A line above the screen, or simply a line. What others wrote in it controls nothing.
  void Print(const std::string& line);
  // The screen stays as it is; what follows is printed below.
  void Release();

 private:
  void Write(const std::string& text) const;
  std::string Clear();

  const int output_;
  bool interactive_ = false;
  bool color_ = false;
  Time next_draw_;
  std::vector<std::string> drawn_;
};

}  // namespace crowdsurf::cli
