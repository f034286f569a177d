// Log sinks for processes: spdlog on stderr, one `time level module message key=value...` a line.
//
// Values with spaces, quotes or control characters are quoted and escaped, so that a line stays a
// line whatever a peer sent. Sinks are thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"

namespace crowdsurf {

std::unique_ptr<LogSink> MakeStderrSink(LogLevel least);

// "debug", "info", "warning", "error"; nullopt for anything else.
std::optional<LogLevel> ParseLogLevel(std::string_view name);

// key=value as it is written: for tests and other writers of such lines.
std::string FormatField(const LogField& field);

}  // namespace crowdsurf
