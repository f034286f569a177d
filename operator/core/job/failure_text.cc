#include "operator/core/job/failure_text.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/text.h"
#include "operator/core/job/reasons.h"
#include "operator/core/job/trouble_words.h"

namespace crowdsurf::controller {
namespace {

constexpr std::string_view kMask = "***";
constexpr std::string_view kTraceback = "Traceback (most recent call last):";
constexpr std::string_view kFatal = "Fatal Python error:";
constexpr std::string_view kStack = "(most recent call first):";  // of a thread, by faulthandler

// What the name of a value ends with that nobody else may know.
constexpr std::string_view kSecretNames[] = {
    "password", "passwd",     "secret",     "token",     "api_key",    "apikey",
    "api-key",  "access_key", "secret_key", "signature", "credential", "authorization"};
// What keys of well-known services begin with; so many letters and digits follow.
constexpr std::string_view kSecretPrefixes[] = {"hf_",   "ghp_", "github_pat_", "glpat-", "sk-",
                                                "xoxb-", "AKIA", "ASIA",        "eyJ"};
constexpr size_t kKeyLetters = 12;

char Lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }
bool IsWordLetter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}
bool EndsValue(char c) {
  return c == ' ' || c == '\t' || c == '"' || c == '\'' || c == '&' || c == ',' || c == ')' ||
         c == '}' || c == ']' || c == ';';
}

// Bytes of the key of a known service that `text` begins with; 0: none.
size_t KnownKeyAt(std::string_view text) {
  for (const std::string_view prefix : kSecretPrefixes) {
    if (!text.starts_with(prefix)) continue;
    size_t end = prefix.size();
    while (end < text.size() && (IsWordLetter(text[end]) || text[end] == '.')) ++end;
    if (end - prefix.size() >= kKeyLetters) return end;
  }
  return 0;
}

bool NamesSecret(std::string_view word) {
  std::string lower;
  for (const char c : word) lower += Lower(c);
  return std::any_of(std::begin(kSecretNames), std::end(kSecretNames),
                     [&](std::string_view name) { return lower.ends_with(name); });
}

// Where the value begins that a name which ends at `at` is given: `=x`, `: x`, `": "x`; npos: none.
size_t ValueAfter(std::string_view line, size_t at) {
  if (at < line.size() && (line[at] == '"' || line[at] == '\'')) ++at;
  if (at >= line.size() || (line[at] != '=' && line[at] != ':')) return std::string_view::npos;
  ++at;
  while (at < line.size() && line[at] == ' ') ++at;
  for (const std::string_view scheme : {"Bearer ", "Basic "}) {  // of the header Authorization
    if (line.substr(at).starts_with(scheme)) at += scheme.size();
  }
  if (at < line.size() && (line[at] == '"' || line[at] == '\'')) ++at;
  return at < line.size() && !EndsValue(line[at]) ? at : std::string_view::npos;
}

// The end of `user:password` that follows "://" up to an @; npos: none.
size_t UserInfoEnd(std::string_view line, size_t at) {
  const size_t end = line.find_first_of("@/ \t\"'", at);
  return end != std::string_view::npos && line[end] == '@' ? end : std::string_view::npos;
}

std::string Masked(std::string_view line) {
  std::string out;
  for (size_t at = 0; at < line.size();) {
    if (line.substr(at).starts_with("://")) {
      out += "://";
      at += 3;
      if (const size_t end = UserInfoEnd(line, at); end != std::string_view::npos) {
        out += kMask;
        at = end;
      }
      continue;
    }
    if (!IsWordLetter(line[at])) {
      out += line[at++];
      continue;
    }
    size_t end = at;
    while (end < line.size() && IsWordLetter(line[end])) ++end;
    if (const size_t key = KnownKeyAt(line.substr(at)); key > 0) {
      out += kMask;
      at += key;
      continue;
    }
    const size_t value =
        NamesSecret(line.substr(at, end - at)) ? ValueAfter(line, end) : std::string_view::npos;
    if (value == std::string_view::npos) {
      out += line.substr(at, end - at);
      at = end;
      continue;
    }
    out += line.substr(at, value - at);
    out += kMask;
    at = value;
    while (at < line.size() && !EndsValue(line[at])) ++at;
  }
  return out;
}

// The last line that is at the margin after the last traceback's head: the frames are indented.
std::string_view ExceptionIn(const std::vector<std::string_view>& lines) {
  for (size_t i = lines.size(); i-- > 0;) {
    if (lines[i].starts_with(kFatal)) return lines[i];
    // Anywhere in it: a data loader passes its child's on as "Original Traceback".
    if (lines[i].find(kTraceback) == std::string_view::npos) continue;
    for (size_t j = i + 1; j < lines.size(); ++j) {
      if (SaysSomething(lines[j]) && lines[j][0] != ' ') return lines[j];
    }
  }
  return {};
}

// Without what is before its first word; at most kMaxFailureLine bytes.
std::string Bounded(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  constexpr std::string_view kMore = "...";
  if (line.size() <= kMaxFailureLine) return std::string(line);
  return CutText(line, kMaxFailureLine - kMore.size()) + std::string(kMore);
}

}  // namespace

std::string ShownOutput(std::string_view output, size_t most) {
  std::string out;
  for (const std::string_view line : SplitText(output, '\n')) out += Masked(ShownLine(line)) + "\n";
  if (!output.ends_with('\n') && !out.empty()) out.pop_back();
  return TextTail(out, most);
}

std::string FailureLine(std::string_view reason, std::string_view shown) {
  const std::vector<std::string_view> lines = SplitText(shown, '\n');
  const bool hung = reason == reason::kTrainerHung;
  std::string_view line = hung ? std::string_view() : ExceptionIn(lines);
  if (!line.empty()) return Bounded(line);
  // The last of those that sound most like a reason. Where it hung the last is the operator's own.
  Sounds loudest = Sounds::kOfNothing;
  for (size_t i = lines.size(); i-- > 0;) {
    if (!SaysSomething(lines[i])) continue;
    const Sounds sounds = hung ? Sounds::kNeutral : SoundsOf(lines[i]);
    if (!line.empty() && sounds <= loudest) continue;
    line = lines[i];
    loudest = sounds;
  }
  return Bounded(line);
}

std::string MainThreadFrame(std::string_view shown) {
  const std::vector<std::string_view> lines = SplitText(shown, '\n');
  for (size_t i = lines.size(); i-- > 0;) {
    // The main thread is the oldest, and the oldest is written last.
    if (lines[i].find(kStack) == std::string_view::npos) continue;
    return i + 1 < lines.size() ? Bounded(lines[i + 1]) : std::string();
  }
  return {};
}

}  // namespace crowdsurf::controller
