// What a token says of itself, from anybody: what cannot be true is not asked about.
#include "operator/core/observe/token_look.h"

#include <absl/strings/escaping.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

const WallTime kNow = WallTime::FromNanoseconds(1'800'000'000'000'000'000);

json Claims() {
  return {{"iss", "https://kubernetes.default.svc"},
          {"aud", {"crowdsurf"}},
          {"exp", 1'800'003'600},
          {"sub", "system:serviceaccount:team:default"},
          {"kubernetes.io",
           {{"namespace", "team"}, {"pod", {{"name", "crowd-0-1"}, {"uid", "uid-0"}}}}}};
}

std::string Jwt(const std::string& claims) {
  return "eyJhbGciOiJSUzI1NiJ9." + absl::WebSafeBase64Escape(claims) + ".c2lnbmF0dXJl";
}

StatusOr<TokenPod> Look(const json& claims) {
  return LookAtToken(Jwt(claims.dump()), "crowdsurf", kNow);
}

TEST(TokenLookTest, APodsTokenNamesItsPod) {
  const auto pod = Look(Claims());
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ(pod->space, "team");
  EXPECT_EQ(pod->name, "crowd-0-1");
  EXPECT_EQ(pod->uid, "uid-0");
  json one = Claims();
  one["aud"] = "crowdsurf";
  EXPECT_TRUE(Look(one).ok());
}

TEST(TokenLookTest, WhatIsForOthersOrOverIsRefused) {
  for (const json& audience : {json(), json::array(), json{"others"}, json("others"), json(7)}) {
    json claims = Claims();
    claims["aud"] = audience;
    EXPECT_TRUE(absl::IsUnauthenticated(Look(claims).status())) << audience;
  }
  json claims = Claims();
  claims["exp"] = 1'799'999'701;  // clocks may differ by five minutes
  EXPECT_TRUE(Look(claims).ok());
  for (const json& until : {json(1'799'999'699), json(), json("soon"), json(-1e300)}) {
    claims["exp"] = until;
    EXPECT_TRUE(absl::IsUnauthenticated(Look(claims).status())) << until;
  }
}

TEST(TokenLookTest, WhatIsNoPodsIsRefused) {
  for (const char* missing : {"/kubernetes.io", "/kubernetes.io/pod", "/kubernetes.io/pod/name",
                              "/kubernetes.io/pod/uid", "/kubernetes.io/namespace"}) {
    json claims = Claims();
    claims[json::json_pointer(missing)] = nullptr;
    EXPECT_TRUE(absl::IsPermissionDenied(Look(claims).status())) << missing;
  }
  json claims = Claims();
  claims["kubernetes.io"]["pod"]["name"] = "../secrets/x";
  EXPECT_TRUE(absl::IsPermissionDenied(Look(claims).status()));
}

TEST(TokenLookTest, GarbageIsNoToken) {
  const std::string good = Jwt(Claims().dump());
  std::vector<std::string> texts = {
      "",        ".",      "..",        "...",
      "a.b",     "a.b.c",  "a.%%%.c",   Jwt("{\"aud\":"),
      Jwt("[]"), Jwt("7"), good + ".d", Jwt(std::string(kMaxToken, '['))};
  for (size_t cut = 0; cut < good.size() - 1; cut += 7) texts.push_back(good.substr(0, cut));
  for (const std::string& text : texts) {
    const Status status = LookAtToken(text, "crowdsurf", kNow).status();
    // Its signature is nobody's to judge here, so a cut there is none.
    const bool whole = text.size() > good.rfind('.') + 1 && good.starts_with(text);
    EXPECT_TRUE(absl::IsUnauthenticated(status) || whole) << text << " " << status;
  }
}

}  // namespace
}  // namespace crowdsurf::controller
