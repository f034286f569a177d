// What is read from kubeconfig files is compared with what kubectl's documentation says of them
// (kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig).
#include "operator/edge/kube/kubeconfig.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/time/clock.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace crowdsurf::controller {
namespace {

struct KubeconfigTest : testing::Test {
  KubeconfigTest() { std::filesystem::create_directories(folder); }
  ~KubeconfigTest() override { std::filesystem::remove_all(folder); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder + "/" + name) << text;
    return folder + "/" + name;
  }
  // One cluster and one user, with these lines in their bodies.
  std::string Config(const std::string& cluster, const std::string& user,
                     const std::string& name = "config") const {
    return Write(name, absl::StrCat("current-context: c\n"
                                    "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
                                    "clusters: [{name: k, cluster: {",
                                    cluster, "}}]\nusers: [{name: u, user: {", user, "}}]\n"));
  }
  static std::string WordsOf(const StatusOr<KubeEndpoint>& endpoint) {
    return endpoint.ok() ? "it was read" : std::string(endpoint.status().message());
  }

  const std::string folder = absl::StrCat(testing::TempDir(), "kubeconfig_test_", getpid());
};

TEST_F(KubeconfigTest, TheServerIsAUrlWithOrWithoutAPort) {
  struct Case {
    const char* server;
    const char* host;
    int port;
    bool tls;
    const char* path = "";
  };
  for (const Case& c :
       {Case{"https://api.example:6443", "api.example", 6443, true},
        Case{"https://api.example/clusters/a", "api.example", 443, true, "/clusters/a"},
        Case{"https://rancher.example:8443/k8s/clusters/c-m-abc/", "rancher.example", 8443, true,
             "/k8s/clusters/c-m-abc"},
        Case{"http://127.0.0.1:8080/", "127.0.0.1", 8080, false},
        Case{"http://api.example", "api.example", 80, false},
        Case{"https://[2001:db8::1]:6443", "2001:db8::1", 6443, true},
        Case{"https://[2001:db8::1]", "2001:db8::1", 443, true}}) {
    const auto read = LoadKubeconfig({Config(absl::StrCat("server: '", c.server, "'"), "")});
    ASSERT_TRUE(read.ok()) << c.server << ": " << read.status();
    EXPECT_EQ(read->host, c.host);
    EXPECT_EQ(read->port, c.port) << c.server;
    EXPECT_EQ(read->tls, c.tls) << c.server;
    EXPECT_EQ(read->path, c.path) << c.server;
  }
  for (const char* wrong : {"api.example:6443", "https://", "https://a:0", "https://a:70000", "",
                            "https://user@a", "https://a/b?c"})
    EXPECT_NE(
        WordsOf(LoadKubeconfig({Config(absl::StrCat("server: '", wrong, "'"), "")})).find("server"),
        std::string::npos)
        << wrong;
}

TEST_F(KubeconfigTest, DataWinsOverFilesAndFilesStandBesideTheConfig) {
  Write("ca.pem", "of a file");
  const auto of_file =
      LoadKubeconfig({Config("server: 'https://a', certificate-authority: ca.pem", "")});
  ASSERT_TRUE(of_file.ok()) << of_file.status();
  EXPECT_EQ(of_file->ca, "of a file");
  const auto inline_data = LoadKubeconfig(
      {Config(absl::StrCat("server: 'https://a', certificate-authority: ca.pem, ",
                           "certificate-authority-data: ", absl::Base64Escape("inline")),
              "")});
  ASSERT_TRUE(inline_data.ok()) << inline_data.status();
  EXPECT_EQ(inline_data->ca, "inline");
  const std::string words = WordsOf(
      LoadKubeconfig({Config("server: 'https://a', certificate-authority-data: '%%'", "")}));
  EXPECT_NE(words.find("certificate-authority-data is not base64"), std::string::npos) << words;
}

TEST_F(KubeconfigTest, OfSeveralFilesTheFirstThatNamesAThingWins) {
  const std::string first =
      Write("first", "current-context: c\nusers: [{name: u, user: {token: a}}]");
  const std::string second = Config("server: 'https://b'", "token: b");
  const auto read = LoadKubeconfig({folder + "/none", first, second});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->host, "b");
  EXPECT_EQ(read->credentials()->token, "a");
  EXPECT_EQ(LoadKubeconfig({folder + "/none"}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(KubeconfigTest, ATokenFileAndAPluginGiveCredentials) {
  Write("token", "secret\n");
  const auto of_file = LoadKubeconfig({Config("server: 'https://a'", "tokenFile: token")});
  ASSERT_TRUE(of_file.ok()) << of_file.status();
  EXPECT_EQ(of_file->credentials()->token, "secret");

  // Its words reach it as they are written, quotes and dollars too; its path is beside the config.
  const std::string plugin = Write(
      "plugin", "#!/bin/sh\nprintf '{\"status\": {\"token\": \"%s %s\"}}' \"$1\" \"$WORD\"\n");
  std::filesystem::permissions(plugin, std::filesystem::perms::owner_all);
  const auto of_plugin = LoadKubeconfig(
      {Config("server: 'https://a'",
              "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, "
              "args: [\"it's $HOME\"], env: "
              "[{name: WORD, value: $(id)}]}")});
  ASSERT_TRUE(of_plugin.ok()) << of_plugin.status();
  const auto credentials = of_plugin->credentials();
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  EXPECT_EQ(credentials->token, "it's $HOME $(id)");

  const auto nothing = LoadKubeconfig({Config("server: 'https://a'",
                                              "exec: {apiVersion: client.authentication.k8s.io/v1, "
                                              "command: /bin/true}")});
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_FALSE(nothing->credentials().ok());
}

TEST_F(KubeconfigTest, APluginRunsAgainBeforeItsCredentialsExpire) {
  const std::string plugin = Write("plugin",
                                   "#!/bin/sh\necho >> \"$0.$1\"\nprintf '{\"status\": "
                                   "{\"token\": \"%s\", \"expirationTimestamp\": \"%s\"}}' "
                                   "\"$(wc -l < \"$0.$1\")\" \"$1\"\n");
  std::filesystem::permissions(plugin, std::filesystem::perms::owner_all);
  // Each run has its number for a token.
  const auto two_tokens = [&](const std::string& expires) {
    const auto read = LoadKubeconfig(
        {Config("server: 'https://a'",
                absl::StrCat("exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: "
                             "./plugin, args: ['",
                             expires, "']}"))});
    EXPECT_TRUE(read.ok()) << read.status();
    const auto first = read->credentials(), second = read->credentials();
    return first->token + ", " + second->token;
  };
  const std::string soon =
      absl::FormatTime(absl::RFC3339_full, absl::Now() + absl::Seconds(20), absl::UTCTimeZone());
  EXPECT_EQ(two_tokens(soon), "1, 2") << "a request would end after them";
  EXPECT_EQ(two_tokens("2999-01-01T00:00:00Z"), "1, 1");
  EXPECT_EQ(two_tokens(""), "1, 1") << "they hold until the end";
}

TEST_F(KubeconfigTest, APluginIsToldOfItsRequestAndItsCluster) {
  const std::string plugin =
      Write("plugin",
            "#!/bin/sh\nprintf '%s' \"$KUBERNETES_EXEC_INFO\" > \"$0.told\"\n"
            "printf '{\"status\": {\"token\": \"t\"}}'\n");
  std::filesystem::permissions(plugin, std::filesystem::perms::owner_all);
  const auto told = [&](const std::string& more) {
    const auto read = LoadKubeconfig(
        {Config(absl::StrCat("server: 'https://a/b', certificate-authority-data: ",
                             absl::Base64Escape("pem")),
                absl::StrCat("exec: {apiVersion: client.authentication.k8s.io/v1, command: "
                             "./plugin",
                             more, "}"))});
    EXPECT_TRUE(read.ok() && read->credentials().ok()) << read.status();
    std::ifstream file(plugin + ".told");
    return nlohmann::json::parse(std::string(std::istreambuf_iterator<char>(file), {}), nullptr,
                                 false);
  };
  EXPECT_EQ(told(""), nlohmann::json::parse(
                          R"({"apiVersion": "client.authentication.k8s.io/v1",
                              "kind": "ExecCredential", "spec": {"interactive": false}})"));
  EXPECT_EQ(told(", provideClusterInfo: true")["spec"]["cluster"],
            nlohmann::json({{"server", "https://a:443/b"},
                            {"certificate-authority-data", absl::Base64Escape("pem")}}));
}

TEST_F(KubeconfigTest, ANullPluginIsNoneAndOthersAreChecked) {
  const auto null = LoadKubeconfig({Config("server: 'https://a'", "exec: null, token: t")});
  ASSERT_TRUE(null.ok()) << null.status();
  EXPECT_EQ(null->credentials()->token, "t");
  const auto words = [&](const std::string& exec) {
    return WordsOf(LoadKubeconfig({Config("server: 'https://a'", "exec: {" + exec + "}")}));
  };
  EXPECT_THAT(words("command: x"), testing::HasSubstr("apiVersion \"\" is neither"));
  const std::string v1 = "apiVersion: client.authentication.k8s.io/v1";
  EXPECT_THAT(words(v1), testing::HasSubstr("has no command"));
  EXPECT_THAT(words(v1 + ", command: x, interactiveMode: Always"),
              testing::HasSubstr("interactiveMode Always is not supported"));
  EXPECT_THAT(words(v1 + ", command: x, policy: y"),
              testing::HasSubstr("policy of the user's exec is not supported"));
}

TEST_F(KubeconfigTest, WhomItActsForIsInTheHeadersOfEachRequest) {
  const auto read = LoadKubeconfig({Config("server: 'https://a'",
                                           "token: t, as: jane, as-uid: '7', as-groups: [a, b], "
                                           "as-user-extra: {scopes: [view, edit]}")});
  ASSERT_TRUE(read.ok()) << read.status();
  const std::vector<std::pair<std::string, std::string>> wanted = {
      {"Impersonate-User", "jane"},         {"Impersonate-Uid", "7"},
      {"Impersonate-Group", "a"},           {"Impersonate-Group", "b"},
      {"Impersonate-Extra-scopes", "view"}, {"Impersonate-Extra-scopes", "edit"}};
  EXPECT_EQ(read->headers, wanted);
  EXPECT_THAT(WordsOf(LoadKubeconfig({Config("server: 'https://a'", "as-groups: [a]")})),
              testing::HasSubstr("without as"));
  EXPECT_THAT(WordsOf(LoadKubeconfig({Config("server: 'https://a'", "as: \"a\\r\\nb: c\"")})),
              testing::HasSubstr("line break"));
}

TEST_F(KubeconfigTest, KeysThatAreNotUnderstoodAreRefusedByName) {
  const auto words = [&](const std::string& cluster, const std::string& user) {
    return WordsOf(LoadKubeconfig({Config("server: 'https://a'" + cluster, user)}));
  };
  EXPECT_THAT(words(", proxy-url: 'http://p:3128'", ""),
              testing::HasSubstr("proxy-url of a cluster is not supported"));
  EXPECT_THAT(words(", tomorrow: 1", ""),
              testing::HasSubstr("tomorrow of a cluster is not supported"));
  EXPECT_THAT(words("", "username: a, password: b"),
              testing::HasSubstr("username of a user is not supported"));
  EXPECT_THAT(words("", "auth-provider: {name: gcp}"),
              testing::HasSubstr("auth-provider of a user is not supported"));
  EXPECT_EQ(words(", proxy-url: null, disable-compression: true, extensions: []",
                  "token: t, username: null"),
            "it was read");
}

// kubectl's order: a notebook in a pod has the kubeconfig of its user.
TEST_F(KubeconfigTest, TheUsersOwnFileComesBeforeThePodsAccount) {
  std::filesystem::create_directories(folder + "/.kube");
  std::filesystem::rename(Config("server: 'https://own'", "token: t"), folder + "/.kube/config");
  const std::map<const char*, std::string> wanted = {{"HOME", folder},
                                                     {"KUBECONFIG", ""},
                                                     {"KUBERNETES_SERVICE_HOST", "10.0.0.1"},
                                                     {"KUBERNETES_SERVICE_PORT", "443"}};
  std::map<const char*, std::optional<std::string>> before;
  for (const auto& [name, value] : wanted) {
    const char* now = std::getenv(name);
    before[name] = now == nullptr ? std::nullopt : std::optional<std::string>(now);
    setenv(name, value.c_str(), 1);
  }
  const auto own = LoadDefaultKubeEndpoint();
  setenv("HOME", "/nowhere", 1);
  const auto pod = LoadDefaultKubeEndpoint();
  for (const auto& [name, value] : before) {
    value ? setenv(name, value->c_str(), 1) : unsetenv(name);
  }
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->host, "own");
  EXPECT_THAT(WordsOf(pod), testing::HasSubstr("serviceaccount/ca.crt"));
}

TEST_F(KubeconfigTest, WhatIsMissingOrNotUnderstoodIsSaid) {
  const auto says = [&](const std::string& text, const char* words) {
    const std::string said = WordsOf(LoadKubeconfig({Write("wrong", text)}));
    EXPECT_NE(said.find(words), std::string::npos) << text << "\nsays: " << said;
  };
  says("{}", "no current-context");
  says("current-context: c", "no contexts entry is named \"c\"");
  says("{current-context: c, contexts: [{name: c, context: {cluster: k}}]}",
       "no clusters entry is named \"k\"");
  says("{", "wrong");
  says("[1, 2]", "no current-context");
  EXPECT_NE(WordsOf(LoadKubeconfig({Config("server: 'https://a', tls-server-name: b", "")}))
                .find("tls-server-name is not supported"),
            std::string::npos);
}

}  // namespace
}  // namespace crowdsurf::controller
