// Outages: has the API server been away, and may what it says of pods still be old?
//
// Kubelets tell what became of their pods through the API server, and come back to it up to 43 s
// after it does (measured after 20 s; they back off to 30 s with jitter). Until then a trainer that
// failed meanwhile still looks as if it ran, while its peers know that it is gone and its node's
// Lease has not been renewed: a failure would be taken for the loss of a machine. So who would
// act on evidence from outside of the API asks here first. Not an outage is one request that fails
// among others that are answered. Pure; owner: KubeClient, under its lock. Source:
// tests/cluster/README.md.
#pragma once

#include "base/time.h"

namespace crowdsurf::controller {

class Outages {
 public:
  // Shorter ones are a server that restarts behind a load balancer, or a renewed connection: no
  // kubelet has backed off far by then.
  static constexpr Duration kShortest = Seconds(5);
  // The 43 s, and a kubelet's next report of its pods.
  static constexpr Duration kKubeletsReturn = Seconds(60);

  // A request was answered; by an error of the server's own (5xx) is Unanswered.
  void Answered(Time now);
  // One that was begun at `asked` was not.
  void Unanswered(Time asked);
  // How long kubelets are still waited for: of an outage that is under way kKubeletsReturn, of one
  // that has ended what is left of it, else nothing.
  Duration Lingers(Time now) const;
  // The last request was not answered.
  bool away() const { return !silent_since_.unset(); }
  bool Linger(Time now) const { return Lingers(now) > Duration(); }

 private:
  Time answered_;      // the last one
  Time silent_since_;  // unset: the last request was answered
  Time ended_;         // the last outage; unset: there was none
};

}  // namespace crowdsurf::controller
