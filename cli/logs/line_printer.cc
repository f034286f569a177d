#include "cli/logs/line_printer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "base/text.h"

namespace crowdsurf::cli {
namespace {

// SGR of ECMA-48: cyan, yellow, green, magenta, blue, red.
constexpr const char* kColors[] = {"36", "33", "32", "35", "34", "31"};

}  // namespace

void LogLines::Take(std::string_view bytes, const std::function<void(const std::string&)>& line) {
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const size_t taken = std::min(end, kMaxLogLine - begun_.size());
    begun_ += bytes.substr(0, taken);
    const bool whole = taken == end && end < bytes.size();
    bytes.remove_prefix(whole ? taken + 1 : taken);
    if (whole) {
      Emit(line);
    } else if (begun_.size() == kMaxLogLine) {
      MakeRoom(line);
    }
  }
}

void LogLines::End(const std::function<void(const std::string&)>& line) {
  if (!begun_.empty()) Emit(line);
}

void LogLines::Emit(const std::function<void(const std::string&)>& line) {
  line(ShownLine(begun_));
  begun_.clear();
}

void LogLines::MakeRoom(const std::function<void(const std::string&)>& line) {
  // A progress bar writes over itself and may never end its line. What it wrote over is not shown.
  // The last byte may belong to a line's end.
  const size_t back = begun_.rfind('\r', begun_.size() - 2);
  if (back == std::string::npos) {
    Emit(line);
  } else {
    begun_.erase(0, back + 1);
  }
}

std::string_view LastLines(std::string_view text, int lines) {
  if (lines < 0) return text;
  if (lines == 0 || text.empty()) return {};
  // The end of the last line begins none.
  size_t begin = text.size() - (text.ends_with('\n') ? 1 : 0);
  while (begin > 0) {
    if (text[begin - 1] == '\n' && --lines == 0) break;
    --begin;
  }
  return text.substr(begin);
}

bool LinePrinter::Print(const std::string& worker, int index, const std::string& line) {
  std::string text = worker + " | ";
  if (prefix_ == Prefix::kNone) text.clear();
  if (prefix_ == Prefix::kColoredName) {
    const char* color = kColors[static_cast<size_t>(index) % std::size(kColors)];
    text = std::string("\x1b[") + color + "m" + worker + " |\x1b[0m ";
  }
  text += line + "\n";
  const std::lock_guard lock(mutex_);
  for (std::string_view left = text; !left.empty() && error_ == 0;) {
    const ssize_t written = write(output_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) error_ = errno;
    left.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
  }
  return error_ == 0;
}

int LinePrinter::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

}  // namespace crowdsurf::cli
