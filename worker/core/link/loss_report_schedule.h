// LossReportSchedule: which workers that this peer has lost are to be reported, and when.
//
// Owner: the agent, single sequence; it looks twice a second. A worker must stay lost for
// kPatience, because a supervisor restarts an agent within 100 ms and it comes back as another peer
// within a second; then it is named every kEvery for kInsist, which outlives a change of the
// operator's leader and its own forgetting of reports (30 s). Later a kubelet's silence has been
// noticed anyhow. Only witnesses of the view report, so that a job of thousands sends no more than
// its fifteen. Bounds: kMaxNotes, kMaxNamed a report. Source: docs/pod-lifecycle.md 3.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/time.h"

namespace crowdsurf::worker {

class LossReportSchedule {
 public:
  static constexpr Duration kPatience = Seconds(2);
  static constexpr Duration kEvery = Seconds(5);
  static constexpr Duration kInsist = Seconds(120);
  static constexpr size_t kMaxNotes = 4096;
  static constexpr size_t kMaxNamed = 64;

  enum class Reporter : uint8_t { kMember, kWitness };  // a member that is none reports nothing
  // lost: PeerSummary::lost. Returns whom to report now, at most kMaxNamed, those that waited
  // longest first; the rest at a later look. O(lost log lost).
  std::vector<std::string> Look(Time now, const std::vector<std::string>& lost, Reporter reporter);

  size_t notes() const { return notes_.size(); }
  uint64_t dropped() const { return dropped_; }  // beyond kMaxNotes; a name at each look

 private:
  struct Note {
    Time since;  // lost without interruption
    Time due;
  };
  std::map<std::string, Note> notes_;
  uint64_t dropped_ = 0;
};

}  // namespace crowdsurf::worker
