// PipeReader: the reading end of what a LinePrinter of a test writes to.
//
// Lines come as they are printed; NextLine waits for one, End for the end of all. Owner: the test's
// thread. Bounded by the test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace crowdsurf::cli {

class PipeReader {
 public:
  PipeReader() { EXPECT_EQ(pipe(ends_), 0); }
  PipeReader(const PipeReader&) = delete;
  ~PipeReader() {
    CloseInput();
    close(ends_[0]);
  }
  int input() const { return ends_[1]; }
  void CloseInput() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  // Without its end; what is left without one at the end of all.
  std::string NextLine() {
    std::string line;
    for (char c; read(ends_[0], &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
  // All that comes until everybody has closed the input.
  std::string Rest() {
    CloseInput();
    std::string text;
    char block[4096];
    for (ssize_t got; (got = read(ends_[0], block, sizeof block)) > 0;)
      text.append(block, static_cast<size_t>(got));
    return text;
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace crowdsurf::cli
