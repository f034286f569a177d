// How much a line of a program's output sounds like the reason why it ended.
//
// What is printed last is often not why: stdout is kept back in a pipe until the end, and progress
// bars and summaries are drawn after an error. Words of English and of common languages' run-time
// systems; nothing here knows a program. Pure, any thread; linear in the line.
#pragma once

#include <string_view>

namespace crowdsurf::controller {

enum class Sounds {
  kOfNothing,  // no letter or digit, or a progress bar
  kNeutral,
  kOfTrouble,  // "cannot", "no such", "killed"
  kOfAnError,  // "ValueError: ...", "fatal", "panic", "what():"
};

// It has a letter or a digit.
bool SaysSomething(std::string_view line);

// `line` as a terminal shows it. A word in front of a number is a figure, "error: 0.31", "failed
// 3", and so is one behind "0" or "no"; a warning is neutral.
Sounds SoundsOf(std::string_view line);

}  // namespace crowdsurf::controller
