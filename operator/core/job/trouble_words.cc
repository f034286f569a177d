#include "operator/core/job/trouble_words.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace crowdsurf::controller {
namespace {

// Ends of words: ValueError, OSError, java.lang.Exception.
constexpr std::string_view kErrorEnds[] = {"error", "exception", "fatal",
                                           "panic", "panicked",  "aborted"};
constexpr std::string_view kErrorPhrases[] = {
    "what():",          "core dumped",   "segmentation fault",
    "assertion failed", "out of memory", "no space left"};
constexpr std::string_view kTroubleEnds[] = {"failed",  "failure", "cannot",  "unable", "denied",
                                             "refused", "killed",  "invalid", "abort"};
constexpr std::string_view kTroublePhrases[] = {
    "can't ", "couldn't ", "could not ", "no such ", "not found", "not enough", "does not exist"};
constexpr size_t kBarLetters = 5;  // equal signs in a row that make a bar

bool IsAlpha(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string LowerCase(std::string_view line) {
  std::string lower(line);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

// A figure of a log line: a number follows the word that ends at `end`, or stands before the one
// that begins at `begin`.
bool IsFigure(std::string_view line, size_t begin, size_t end) {
  const size_t after = line.find_first_not_of(" :=\t", end);
  if (after != std::string_view::npos && IsDigit(line[after])) {
    // "error 5: no labels" and "Error 2" are no measurements, "error: 0.31" and "error=3" are.
    const bool assigned = line.substr(end, after - end).find_first_of(":=") != line.npos;
    const bool fraction = line.find('.', after) != line.npos;
    if (assigned || fraction) return true;
  }
  const std::string_view before = line.substr(0, begin);
  return before.ends_with("no ") || before.ends_with("0 ") || before == "0 ";
}

// A word of `line` that ends with one of `ends` and is no figure.
template <size_t N>
bool HasWord(std::string_view line, const std::string_view (&ends)[N]) {
  for (size_t begin = 0; begin < line.size();) {
    if (!IsAlpha(line[begin])) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < line.size() && IsAlpha(line[end])) ++end;
    const std::string_view word = line.substr(begin, end - begin);
    const bool matches = std::any_of(std::begin(ends), std::end(ends),
                                     [&](std::string_view known) { return word.ends_with(known); });
    if (matches && !IsFigure(line, begin, end)) return true;
    begin = end;
  }
  return false;
}

template <size_t N>
bool HasPhrase(std::string_view line, const std::string_view (&phrases)[N]) {
  return std::any_of(std::begin(phrases), std::end(phrases), [&](std::string_view phrase) {
    return line.find(phrase) != std::string_view::npos;
  });
}

// tqdm's "100%|####| 5/5", and rows of signs between brackets as Keras and pip draw them.
bool IsBar(std::string_view line) {
  if (line.find("%|") != std::string_view::npos) return true;
  size_t run = 1;
  for (size_t i = 1; i < line.size(); ++i) {
    // Signs of three bytes each are equal to the one three bytes before.
    const bool wide = i >= 3 && (line[i] & 0x80) != 0 && line[i] == line[i - 3];
    run = line[i] == line[i - 1] || wide ? run + 1 : 1;
    const bool sign = !IsAlpha(line[i]) && !IsDigit(line[i]) && line[i] != ' ';
    if (sign && run >= (wide ? 3 * kBarLetters : kBarLetters)) return true;
  }
  return false;
}

}  // namespace

bool SaysSomething(std::string_view line) {
  return std::any_of(line.begin(), line.end(), [](char c) {
    return IsAlpha(c) || IsDigit(c) || static_cast<unsigned char>(c) >= 0x80;
  });
}

Sounds SoundsOf(std::string_view line) {
  if (!SaysSomething(line)) return Sounds::kOfNothing;
  const std::string lower = LowerCase(line);
  const bool warns = lower.find("warn") != std::string::npos;
  if (!warns && (HasWord(lower, kErrorEnds) || HasPhrase(lower, kErrorPhrases))) {
    return Sounds::kOfAnError;
  }
  if (!warns && (HasWord(lower, kTroubleEnds) || HasPhrase(lower, kTroublePhrases))) {
    return Sounds::kOfTrouble;
  }
  return IsBar(line) ? Sounds::kOfNothing : Sounds::kNeutral;
}

}  // namespace crowdsurf::controller
