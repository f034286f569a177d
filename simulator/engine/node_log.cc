#include "simulator/engine/node_log.h"

#include <absl/strings/str_format.h>

#include <string>

namespace crowdsurf::simulator {

void NodeLog::Write(LogLevel level, std::string_view module, std::string_view message,
                    std::initializer_list<LogField> fields) {
  const double seconds = (queue_.now() - kStartOfTime).seconds();
  const std::string source =
      absl::StrFormat("%9.6f node %d %s", seconds, node_, std::string(module));
  sink_->Write(level, source, message, fields);
}

}  // namespace crowdsurf::simulator
