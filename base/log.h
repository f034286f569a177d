// Log: constant lower-case messages with typed keys, written through a Sink.
//
// Cores log through the Logger they are given and never own a clock or a file; the host's Sink adds
// time and writes (edges: spdlog on stderr; simulator: the trace; tests: memory or nothing). One
// info line per state change; nothing per chunk at info. No secrets, ever. A Logger is a cheap
// value; the Sink must outlive it. Sinks are thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace crowdsurf {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogField {
  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  LogField(std::string_view k, bool v) : key(k), value(v ? "true" : "false") {}
  LogField(std::string_view k, double v);
  template <class Int>
  requires(std::is_integral_v<Int> && !std::is_same_v<Int, bool>)
      LogField(std::string_view k, Int v)
      : key(k), value(std::to_string(v)) {}

  std::string_view key;  // a literal
  std::string value;
};

class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void Write(LogLevel level, std::string_view module, std::string_view message,
                     std::initializer_list<LogField> fields) = 0;
};

class Logger {
 public:
  Logger() = default;  // drops everything
  Logger(LogSink* sink, std::string_view module, LogLevel least = LogLevel::kInfo)
      : sink_(sink), module_(module), min_(least) {}

  // The same sink under another module name (a literal).
  Logger For(std::string_view module) const { return {sink_, module, min_}; }

  void Debug(std::string_view m, std::initializer_list<LogField> f = {}) const {
    Write(LogLevel::kDebug, m, f);
  }
  void Info(std::string_view m, std::initializer_list<LogField> f = {}) const {
    Write(LogLevel::kInfo, m, f);
  }
  void Warning(std::string_view m, std::initializer_list<LogField> f = {}) const {
    Write(LogLevel::kWarning, m, f);
  }
  void Error(std::string_view m, std::initializer_list<LogField> f = {}) const {
    Write(LogLevel::kError, m, f);
  }
  bool Enabled(LogLevel level) const { return sink_ != nullptr && level >= min_; }

 private:
  void Write(LogLevel level, std::string_view m, std::initializer_list<LogField> f) const {
    if (Enabled(level)) sink_->Write(level, module_, m, f);
  }
  LogSink* sink_ = nullptr;
  std::string_view module_;
  LogLevel min_ = LogLevel::kInfo;
};

}  // namespace crowdsurf
