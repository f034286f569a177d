#include "base/edge/log_sink.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace crowdsurf {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

class StderrSink : public LogSink {
 public:
  explicit StderrSink(LogLevel least)
      : logger_("crowdsurf", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger_.set_level(ToSpdlog(least));
    // Every line is flushed: a process that is killed has said its last one.
    logger_.flush_on(spdlog::level::debug);
    logger_.set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  }

  void Write(LogLevel level, std::string_view module, std::string_view message,
             std::initializer_list<LogField> fields) override {
    const spdlog::level::level_enum at = ToSpdlog(level);
    if (!logger_.should_log(at)) return;
    std::string line(module);
    line.append(" ").append(message);
    for (const LogField& field : fields) line.append(" ").append(FormatField(field));
    // The line is an argument, never the format: text of a peer may hold braces.
    logger_.log(at, "{}", line);
  }

 private:
  spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<LogSink> MakeStderrSink(LogLevel least) {
  return std::make_unique<StderrSink>(least);
}

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  return std::nullopt;
}

std::string FormatField(const LogField& field) {
  std::string out(field.key);
  out += '=';
  // Quoted is whatever would end the line or pass for another field.
  bool plain = !field.value.empty();
  for (const char c : field.value) {
    plain = plain && c > ' ' && c != '"' && c != '=' && c != '\\' && c != 0x7f;
  }
  if (plain) return out + field.value;
  static constexpr char kDigits[] = "0123456789abcdef";
  out += '"';
  for (const char c : field.value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.append({'\\', c});
    } else if (byte < 0x20 || byte == 0x7f) {
      out.append({'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]});
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace crowdsurf
