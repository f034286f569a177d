// NodeLog: what an agent of a simulated job says, with the virtual time and its node's number
// before it.
//
// Owner: one virtual node; single sequence. Writes into the sink of the run, or nowhere when there
// is none.
#pragma once

#include "base/log.h"
#include "simulator/engine/event_queue.h"

namespace crowdsurf::simulator {

class NodeLog : public LogSink {
 public:
  // `sink`: null when nobody listens; else, like `queue`, outlives this.
  NodeLog(int node, LogSink* sink, EventQueue& queue) : node_(node), sink_(sink), queue_(queue) {}
  void Write(LogLevel level, std::string_view module, std::string_view message,
             std::initializer_list<LogField> fields) override;
  // Drops everything when nobody listens.
  Logger LoggerFor(std::string_view module) {
    return sink_ == nullptr ? Logger() : Logger(this, module, LogLevel::kDebug);
  }

 private:
  const int node_;
  LogSink* const sink_;
  EventQueue& queue_;
};

}  // namespace crowdsurf::simulator
