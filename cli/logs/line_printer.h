// LinePrinter: bytes that workers printed, as lines behind their worker's name.
//
// LogLines makes lines of the pieces in which a log comes, each as a terminal would show it
// (base/text.h): what a trainer prints cannot move the reader's cursor. A line is at most
// kMaxLogLine bytes; a longer one is printed in pieces. LinePrinter writes whole lines, several
// threads may. Bounded: kMaxLogLine a log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace crowdsurf::cli {

inline constexpr size_t kMaxLogLine = 8 << 10;

class LogLines {
 public:
  // `line` is called for each line that is whole, without its end.
  void Take(std::string_view bytes, const std::function<void(const std::string&)>& line);
  // The log has ended: a line without an end is one all the same.
  void End(const std::function<void(const std::string&)>& line);

 private:
  void Emit(const std::function<void(const std::string&)>& line);
  void MakeRoom(const std::function<void(const std::string&)>& line);

  std::string begun_;
};

// The last `lines` lines of `text`; negative: all of it.
std::string_view LastLines(std::string_view text, int lines);

enum class Prefix : uint8_t { kNone, kName, kColoredName };

class LinePrinter {
 public:
  // Writes to the descriptor `output`, not owned.
  LinePrinter(int output, Prefix prefix) : output_(output), prefix_(prefix) {}

  // One line of the worker with this name; `index` chooses the colour. False, from then on: nobody
  // reads any more, or the disk is full (error()). Any thread.
  bool Print(const std::string& worker, int index, const std::string& line);
  // errno of the write that failed; 0: none did. EPIPE: the reader has seen enough. Any thread.
  int error() const;

 private:
  const int output_;
  const Prefix prefix_;
  mutable std::mutex mutex_;
  int error_ = 0;
};

}  // namespace crowdsurf::cli
