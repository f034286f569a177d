#include "cli/screen/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "base/text.h"

namespace crowdsurf::cli {
namespace {

constexpr Duration kBetweenDraws = Milliseconds(200);
constexpr int kUsualWidth = 80, kUsualHeight = 24;

// Logs of CI and dumb terminals cannot move the cursor back.
bool IsScreen(int output) {
  const char* kind = std::getenv("TERM");
  return isatty(output) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

bool Set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

bool TakesColor(int output) { return IsScreen(output) && !Set("NO_COLOR"); }

Terminal::Terminal(int output)
    : output_(output), interactive_(IsScreen(output)), color_(TakesColor(output)) {
  // A cursor would jump about while lines are drawn.
  if (interactive_) Write("\x1b[?25l");
}

Terminal::~Terminal() { Release(); }

int Terminal::width() const {
  winsize size = {};
  if (ioctl(output_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kUsualWidth;
}

int Terminal::height() const {
  winsize size = {};
  if (ioctl(output_, TIOCGWINSZ, &size) == 0 && size.ws_row > 0) return size.ws_row;
  return kUsualHeight;
}

void Terminal::Write(const std::string& text) const {
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = write(output_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads any more: training goes on
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

// To the first line of the screen, and everything below it erased.
std::string Terminal::Clear() {
  if (drawn_.empty()) return {};
  // One that has become smaller has the first lines no more: they have scrolled away.
  const size_t back = std::min(drawn_.size(), static_cast<size_t>(std::max(1, height() - 1)));
  // ECMA-48: nA goes up n lines, J erases to the end. ?25l and ?25h hide and show the cursor.
  return "\r\x1b[" + std::to_string(back) + "A\x1b[J";
}

void Terminal::Draw(Time now, const std::vector<std::string>& lines) {
  if (!interactive_) return;
  next_draw_ = now + kBetweenDraws;
  std::string text = Clear();
  for (const std::string& line : lines) text += line + "\n";
  drawn_ = lines;
  Write(text);
}

void Terminal::Print(const std::string& line) {
  std::string text = Clear() + ShownText(line) + "\n";
  // In one write with the line, so that the screen never flickers or stands twice.
  for (const std::string& again : drawn_) text += again + "\n";
  Write(text);
}

void Terminal::Release() {
  if (interactive_) Write("\x1b[?25h");
  interactive_ = false;
  drawn_.clear();
}

}  // namespace crowdsurf::cli
