// ClusterLogs: the logs of a job's pods, from the API server, as kubectl asks for them.
//
// Without --follow one log after the other. With it a thread and a connection a pod, at most
// kMaxFollowed; pods that come later are followed, too, until the job is over. Bounded: a line a
// pod. Source: Kubernetes API reference, "read log of the specified Pod".
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "cli/logs/line_printer.h"
#include "cli/logs/logs_options.h"
#include "operator/edge/kube/kube_client.h"

namespace crowdsurf::cli {

inline constexpr size_t kMaxFollowed =
    64;  // a thread and a connection each; kubectl's default is 5

// A line beside the logs, for people.
using Note = std::function<void(const std::string&)>;

// Prints what `options` ask for of a job in `space`, a namespace. NotFound: no such job or worker,
// and which there are; InvalidArgument: too many to follow; else what the API server said. OK as
// well when nobody reads the printer any more. Stops `client` after a follow.
Status PrintClusterLogs(const LogsOptions& options, const std::string& space,
                        controller::KubeClient& client, LinePrinter& printer, const Note& note);

}  // namespace crowdsurf::cli
