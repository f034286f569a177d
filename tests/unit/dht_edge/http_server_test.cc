#include "coordinator-free-dht/edge/http_server.h"

#include <gmock/gmock.h>
#include <httplib.h>

#include "coordinator-free-dht/edge/log_sink.h"

namespace crowdsurf::dht {
namespace {

TEST(HttpServerTest, ServesHealthMetricsAndExtraPagesOnAFreePort) {
  MetricRegistry metrics;
  metrics.AddCounter("crowdsurf_x_total", "Things.").Add();
  HttpServer server(metrics);
  server.Handle("/readyz", [] { return HttpReply{503, "starting\n"}; });
  server.Handle("/summary", [] { return HttpReply{200, "{}", "application/json"}; });
  ASSERT_TRUE(server.Start("127.0.0.1", 0).ok());
  httplib::Client client("127.0.0.1", server.port());
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_EQ(client.Get("/readyz")->status, 503);
  EXPECT_THAT(client.Get("/metrics")->body, testing::HasSubstr("crowdsurf_x_total 1"));
  EXPECT_EQ(client.Get("/summary")->get_header_value("Content-Type"), "application/json");
  EXPECT_EQ(client.Get("/nothing")->status, 404);
  HttpServer second(metrics);
  const Status taken = second.Start("127.0.0.1", server.port());
  EXPECT_THAT(std::string(taken.message()), testing::HasSubstr("127.0.0.1"));
}

TEST(LogSinkTest, AValueCannotBreakItsLine) {
  EXPECT_EQ(FormatField({"k", "plain-1.5"}), "k=plain-1.5");
  EXPECT_EQ(FormatField({"k", ""}), "k=\"\"");
  EXPECT_EQ(FormatField({"k", "two words"}), "k=\"two words\"");
  EXPECT_EQ(FormatField({"k", "a\"b\\c\nlevel=error"}), "k=\"a\\\"b\\\\c\\x0alevel=error\"");
  LogLevel level;
  EXPECT_TRUE(ParseLogLevel("warning", &level));
  EXPECT_EQ(level, LogLevel::kWarning);
  EXPECT_FALSE(ParseLogLevel("loud", &level));
}

}  // namespace
}  // namespace crowdsurf::dht
