// The tables of what clouds write on nodes: who is spot, and which marks say "going away".
//
// One row a string, so that a new cloud is a row and no code. FindMark reads a node's JSON against
// the table; a deadline is known only where the mark carries an instant and the cloud promises a
// time. Observe and the pod builder ask. Pure, any thread; the tables are constants.
// Source: docs/kubernetes.md.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "operator/core/port/snapshot.h"

namespace crowdsurf::controller {

struct SpotLabel {
  const char* key;
  const char* value;
};
struct SpotTaint {
  const char* key;
  const char* value;
};
const std::vector<SpotLabel>& SpotLabels();
const std::vector<SpotTaint>& SpotTaints();

enum class MarkKind { kTaint, kLabel, kCondition };

struct MarkRow {
  const char* signal;  // for people
  MarkKind kind;
  const char* key;
  const char* value;  // "" any; of conditions the status
  double seconds;     // from the mark's own instant to the end; 0: not promised
  bool weak;          // may come to nothing: prepare, do not drain
};
const std::vector<MarkRow>& MarkTable();

// The strongest mark of a node: not weak before weak, then the earlier deadline, then the table's
// order. A node that is being deleted and a cordon are marks too.
std::optional<Mark> FindMark(const nlohmann::json& node);

}  // namespace crowdsurf::controller
