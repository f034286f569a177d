// Kube requests: how a request to the Kubernetes API is written.
//
// Pure functions; any thread. Sources: the API concepts of Kubernetes (patch types), RFC 3986.
#pragma once

#include <httplib.h>

#include <nlohmann/json.hpp>
#include <string>

#include "operator/edge/kube/kube_client.h"

namespace crowdsurf::controller {

httplib::Request GetRequest(const std::string& path);
httplib::Request JsonRequest(const char* method, const std::string& path,
                             const nlohmann::json& object, const char* type = "application/json");
const char* ContentType(PatchType type);
std::string PercentEncoded(const std::string& text);  // as the value of a query
// What a server's request to wait is about: method and resource, "POST pods"; one object of it and
// all of them differ, "GET pods/NAME" and "GET pods". Bound: the resources that we ask for.
std::string KindOfRequest(const std::string& method, const std::string& path);

}  // namespace crowdsurf::controller
