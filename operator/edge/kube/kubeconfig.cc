#include "operator/edge/kube/kubeconfig.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <absl/time/time.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/edge/files.h"
#include "base/text.h"
#include "operator/core/job/json_path.h"

namespace crowdsurf::controller {
namespace {

constexpr char kAccountFolder[] = "/var/run/secrets/kubernetes.io/serviceaccount";
// kubelet renews a projected token at 80 % of an hour or more; reading it every minute is never too
// late.
constexpr int64_t kTokenReadSeconds = 60;
constexpr size_t kLongestKey = 100;  // bytes of what is wrong, in a message

int64_t UnixNow() { return absl::ToUnixSeconds(absl::Now()); }

// A path in a kubeconfig is relative to the file that names it.
std::string Beside(const std::string& file, const std::string& path) {
  if (path.empty() || path[0] == '/') return path;
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? path : file.substr(0, slash + 1) + path;
}

std::string Text(const YAML::Node& node, const char* key) {
  return node && node[key] && node[key].IsScalar() ? node[key].as<std::string>() : std::string();
}

// node[<key>-data] in base64, else the file that node[<key>] names, else empty.
StatusOr<std::string> DataOrFile(const YAML::Node& node, const std::string& key,
                                 const std::string& file) {
  const std::string data = Text(node, (key + "-data").c_str());
  if (!data.empty()) {
    std::string decoded;
    if (!absl::Base64Unescape(data, &decoded)) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": ", key, "-data is not base64"));
    }
    return decoded;
  }
  const std::string path = Text(node, key.c_str());
  return path.empty() ? StatusOr<std::string>(std::string()) : ReadFile(Beside(file, path));
}

// A key that is null is absent, as it is to kubectl.
bool Has(const YAML::Node& node, const char* key) {
  return node && node.IsMap() && node[key] && !node[key].IsNull();
}

struct Found {
  YAML::Node node;
  std::string file;
};

// A key that is read past may name another server, or other rights.
Status CheckKeys(const Found& entry, const std::string& what,
                 std::initializer_list<std::string_view> known) {
  if (!entry.node || entry.node.IsNull()) return absl::OkStatus();
  if (!entry.node.IsMap()) {
    return absl::InvalidArgumentError(absl::StrCat(entry.file, ": ", what, " is no mapping"));
  }
  for (const auto& field : entry.node) {
    const std::string key = field.first.IsScalar() ? field.first.Scalar() : "a key";
    if (field.second.IsNull() || std::find(known.begin(), known.end(), key) != known.end())
      continue;
    return absl::InvalidArgumentError(absl::StrCat(entry.file, ": ", ShownText(key, kLongestKey),
                                                   " of ", what, " is not supported"));
  }
  return absl::OkStatus();
}

// The first entry named `name` of list `list` over all files; its body is under `body`.
StatusOr<Found> Named(const std::vector<Found>& files, const char* list, const char* body,
                      const std::string& name) {
  for (const Found& file : files) {
    for (const YAML::Node& entry : file.node[list]) {
      if (Text(entry, "name") == name) return Found{entry[body], file.file};
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("kubeconfig: no ", list, " entry is named \"", name, "\""));
}

Status ParseServer(const std::string& server, KubeEndpoint& out) {
  std::string_view rest = server;
  if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
    out.tls = false;
    out.port = 80;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("kubeconfig: server \"", server, "\" is no http(s) URL"));
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string host_port(rest.substr(0, slash));
  out.path = std::string(rest.substr(slash));
  while (out.path.ends_with('/')) out.path.pop_back();
  if (rest.find_first_of("?#@ ") != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("kubeconfig: server \"", ShownText(server),
                                                   "\" is more than a host, a port and a path"));
  }
  const size_t colon = host_port.rfind(':');
  // The colons of an IPv6 address stand in brackets, and are no port's.
  const bool bracket = !host_port.empty() && host_port[0] == '[';
  const size_t close = host_port.find(']');
  if (colon != std::string::npos && (!bracket || colon > close)) {
    out.port = std::atoi(host_port.c_str() + colon + 1);
    out.host = host_port.substr(0, colon);
  } else {
    out.host = host_port;
  }
  if (bracket) out.host = host_port.substr(1, close - 1);
  if (out.host.empty() || out.port <= 0 || out.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("kubeconfig: server \"", server, "\" has no host or a bad port"));
  }
  return absl::OkStatus();
}

std::string ShellQuoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// A client-go credential plugin prints an ExecCredential of client.authentication.k8s.io.
StatusOr<KubeCredentials> RunPlugin(const std::string& command) {
  // A shell reads the command, so each word of the file is quoted (ShellQuoted).
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) return absl::UnavailableError("cannot run the kubeconfig's exec plug-in");
  std::string output;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe.get())) > 0;) {
    output.append(buffer, n);
    if (output.size() > (1 << 20))
      return absl::ResourceExhaustedError("the exec plug-in says more than 1 MiB");
  }
  const auto credential = nlohmann::json::parse(output, nullptr, false);
  if (!credential.is_object() || !credential.contains("status") ||
      !credential["status"].is_object()) {
    return absl::UnavailableError("the kubeconfig's exec plug-in gave no ExecCredential");
  }
  const auto& status = credential["status"];
  KubeCredentials result{TextAt(status, "token"), TextAt(status, "clientCertificateData"),
                         TextAt(status, "clientKeyData"), 0};
  absl::Time expires;
  std::string error;
  if (absl::ParseTime(absl::RFC3339_full, TextAt(status, "expirationTimestamp"), &expires,
                      &error)) {
    result.expires_unix = absl::ToUnixSeconds(expires);
  }
  return result;
}

// What client-go tells a plug-in (client.authentication.k8s.io/v1, ExecCredential).
std::string ExecInfo(const YAML::Node& exec, const KubeEndpoint& endpoint) {
  nlohmann::json spec = {{"interactive", false}};
  if (Text(exec, "provideClusterInfo") == "true") {
    const std::string host =
        endpoint.host.find(':') == std::string::npos ? endpoint.host : "[" + endpoint.host + "]";
    nlohmann::json cluster = {{"server", absl::StrCat(endpoint.tls ? "https://" : "http://", host,
                                                      ":", endpoint.port, endpoint.path)}};
    if (endpoint.skip_verification) cluster["insecure-skip-tls-verify"] = true;
    if (!endpoint.ca.empty()) {
      cluster["certificate-authority-data"] = absl::Base64Escape(endpoint.ca);
    }
    spec["cluster"] = cluster;
  }
  return JsonText(nlohmann::json{
      {"apiVersion", Text(exec, "apiVersion")}, {"kind", "ExecCredential"}, {"spec", spec}});
}

Status CheckPlugin(const Found& exec) {
  RETURN_IF_ERROR(CheckKeys(exec, "the user's exec",
                            {"apiVersion", "command", "args", "env", "installHint",
                             "provideClusterInfo", "interactiveMode"}));
  const std::string version = Text(exec.node, "apiVersion");
  if (version != "client.authentication.k8s.io/v1" &&
      version != "client.authentication.k8s.io/v1beta1") {
    return absl::InvalidArgumentError(absl::StrCat(
        exec.file, ": the exec plug-in's apiVersion \"", ShownText(version, kLongestKey),
        "\" is neither client.authentication.k8s.io/v1 nor v1beta1"));
  }
  if (Text(exec.node, "interactiveMode") == "Always") {
    return absl::InvalidArgumentError(
        absl::StrCat(exec.file, ": an exec plug-in with interactiveMode Always is not supported"));
  }
  if (Text(exec.node, "command").empty()) {
    return absl::InvalidArgumentError(absl::StrCat(exec.file, ": the exec plug-in has no command"));
  }
  return absl::OkStatus();
}

// The command line of users[].user.exec, its env set in front.
std::string PluginCommand(const YAML::Node& exec, const std::string& file,
                          const KubeEndpoint& endpoint) {
  std::string line = "env " + ShellQuoted("KUBERNETES_EXEC_INFO=" + ExecInfo(exec, endpoint));
  for (const YAML::Node& variable : exec["env"]) {
    line += " " + ShellQuoted(Text(variable, "name") + "=" + Text(variable, "value"));
  }
  // As kubectl takes it: a bare name is looked up in PATH.
  const std::string command = Text(exec, "command");
  line +=
      " " + ShellQuoted(command.find('/') == std::string::npos ? command : Beside(file, command));
  for (const YAML::Node& argument : exec["args"])
    line += " " + ShellQuoted(argument.as<std::string>());
  return line;
}

// Caches what `renew` gives until `seconds` have passed or the credentials' own expiry is near.
std::function<StatusOr<KubeCredentials>()> Cached(std::function<StatusOr<KubeCredentials>()> renew,
                                                  int64_t seconds) {
  struct State {
    std::mutex mutex;
    KubeCredentials held;
    int64_t until = 0;
  };
  return [state = std::make_shared<State>(), renew = std::move(renew),
          seconds]() -> StatusOr<KubeCredentials> {
    const std::lock_guard lock(state->mutex);
    const int64_t now = UnixNow();
    if (now < state->until) return state->held;
    ASSIGN_OR_RETURN(state->held, renew());
    // 30 s early, so that no request is under way with credentials that expire.
    state->until = state->held.expires_unix > 0 ? state->held.expires_unix - 30 : now + seconds;
    return state->held;
  };
}

// In whose name requests are made: kubernetes.io, "User impersonation".
Status LoadImpersonation(const Found& user, KubeEndpoint& out) {
  const std::string name = Text(user.node, "as");
  const auto has = [&](const char* key) { return Has(user.node, key); };
  if (name.empty()) {
    if (!has("as-uid") && !has("as-groups") && !has("as-user-extra")) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(user.file, ": as-uid, as-groups or as-user-extra without as"));
  }
  out.headers.emplace_back("Impersonate-User", name);
  if (has("as-uid")) out.headers.emplace_back("Impersonate-Uid", Text(user.node, "as-uid"));
  if (has("as-groups")) {
    for (const YAML::Node& group : user.node["as-groups"])
      out.headers.emplace_back("Impersonate-Group", group.as<std::string>());
  }
  if (has("as-user-extra")) {
    for (const auto& extra : user.node["as-user-extra"]) {
      for (const YAML::Node& value : extra.second)
        out.headers.emplace_back("Impersonate-Extra-" + extra.first.as<std::string>(),
                                 value.as<std::string>());
    }
  }
  for (const auto& [header, value] : out.headers) {
    // It would end the header, and begin another.
    const std::string both = header + value;
    if (both.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos) continue;
    return absl::InvalidArgumentError(absl::StrCat(user.file, ": a line break in as"));
  }
  return absl::OkStatus();
}

Status LoadUser(const Found& user, KubeEndpoint& out) {
  const std::string file = user.file;
  RETURN_IF_ERROR(CheckKeys(
      user, "a user",
      {"client-certificate", "client-certificate-data", "client-key", "client-key-data", "token",
       "tokenFile", "exec", "extensions", "as", "as-uid", "as-groups", "as-user-extra"}));
  RETURN_IF_ERROR(LoadImpersonation(user, out));
  if (Has(user.node, "exec")) {
    const Found exec{user.node["exec"], file};
    RETURN_IF_ERROR(CheckPlugin(exec));
    const std::string command = PluginCommand(exec.node, file, out);
    // Credentials of a plug-in that names no expiry hold until the end.
    out.credentials = Cached([command] { return RunPlugin(command); }, INT64_C(1) << 40);
    return absl::OkStatus();
  }
  const std::string token_file = Text(user.node, "tokenFile");
  if (!token_file.empty()) {
    const std::string path = Beside(file, token_file);
    out.credentials = Cached(
        [path]() -> StatusOr<KubeCredentials> {
          ASSIGN_OR_RETURN(const std::string token, ReadFile(path));
          return KubeCredentials{std::string(absl::StripAsciiWhitespace(token)), {}, {}, 0};
        },
        kTokenReadSeconds);
    return absl::OkStatus();
  }
  KubeCredentials fixed;
  fixed.token = Text(user.node, "token");
  ASSIGN_OR_RETURN(fixed.certificate, DataOrFile(user.node, "client-certificate", file));
  ASSIGN_OR_RETURN(fixed.key, DataOrFile(user.node, "client-key", file));
  out.credentials = [fixed]() -> StatusOr<KubeCredentials> { return fixed; };
  return absl::OkStatus();
}

StatusOr<KubeEndpoint> Load(const std::vector<Found>& files, std::string context) {
  for (const Found& file : files) {
    // The first file that names one wins, as in kubectl.
    if (context.empty()) context = Text(file.node, "current-context");
  }
  if (context.empty()) return absl::InvalidArgumentError("kubeconfig: no current-context is set");
  ASSIGN_OR_RETURN(const Found chosen, Named(files, "contexts", "context", context));
  ASSIGN_OR_RETURN(const Found cluster,
                   Named(files, "clusters", "cluster", Text(chosen.node, "cluster")));
  ASSIGN_OR_RETURN(const Found user, Named(files, "users", "user", Text(chosen.node, "user")));
  KubeEndpoint out;
  RETURN_IF_ERROR(CheckKeys(
      cluster, "a cluster",
      {"server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify",
       "tls-server-name", "disable-compression", "extensions"}));
  RETURN_IF_ERROR(CheckKeys(chosen, "a context", {"cluster", "user", "namespace", "extensions"}));
  RETURN_IF_ERROR(ParseServer(Text(cluster.node, "server"), out));
  ASSIGN_OR_RETURN(out.ca, DataOrFile(cluster.node, "certificate-authority", cluster.file));
  out.skip_verification = Text(cluster.node, "insecure-skip-tls-verify") == "true";
  if (!Text(cluster.node, "tls-server-name").empty())
    return absl::InvalidArgumentError(
        "kubeconfig: tls-server-name is not supported: name the server as its certificate does");
  const std::string space = Text(chosen.node, "namespace");
  if (!space.empty()) out.default_namespace = space;
  RETURN_IF_ERROR(LoadUser(user, out));
  return out;
}

}  // namespace

StatusOr<KubeEndpoint> LoadKubeconfig(const std::vector<std::string>& paths,
                                      const std::string& context) {
  std::vector<Found> files;
  std::string at;
  try {
    for (const std::string& path : paths) {
      at = path;
      const StatusOr<std::string> text = ReadFile(path);
      if (!text.ok()) continue;  // kubectl skips files of the list that do not exist
      files.push_back({YAML::Load(*text), path});
    }
    if (files.empty())
      return absl::NotFoundError("no kubeconfig at " + (paths.empty() ? "(no path)" : paths[0]));
    return Load(files, context);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(at, ": ", error.what()));
  }
}

StatusOr<KubeEndpoint> LoadInCluster(const std::string& folder, const std::string& host,
                                     const std::string& port) {
  KubeEndpoint out;
  out.host = host;
  out.port = std::atoi(port.c_str());
  if (host.empty() || out.port <= 0)
    return absl::InvalidArgumentError("no KUBERNETES_SERVICE_HOST and _PORT: not in a pod");
  ASSIGN_OR_RETURN(out.ca, ReadFile(folder + "/ca.crt"));
  const StatusOr<std::string> space = ReadFile(folder + "/namespace");
  if (space.ok()) out.default_namespace = std::string(absl::StripAsciiWhitespace(*space));
  out.credentials = Cached(
      [path = folder + "/token"]() -> StatusOr<KubeCredentials> {
        ASSIGN_OR_RETURN(const std::string token, ReadFile(path));
        return KubeCredentials{std::string(absl::StripAsciiWhitespace(token)), {}, {}, 0};
      },
      kTokenReadSeconds);
  return out;
}

StatusOr<KubeEndpoint> LoadDefaultKubeEndpoint() {
  const char* host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* port = std::getenv("KUBERNETES_SERVICE_PORT");
  const char* paths = std::getenv("KUBECONFIG");
  // In kubectl's order: a notebook in a pod has a kubeconfig of its user, who has other rights.
  if (paths != nullptr && *paths != 0) {
    return LoadKubeconfig(absl::StrSplit(paths, ':', absl::SkipEmpty()));
  }
  const char* home = std::getenv("HOME");
  const std::string own = std::string(home == nullptr ? "" : home) + "/.kube/config";
  const bool in_pod = host != nullptr && port != nullptr;
  if (in_pod && access(own.c_str(), F_OK) != 0) return LoadInCluster(kAccountFolder, host, port);
  return LoadKubeconfig({own});
}

}  // namespace crowdsurf::controller
