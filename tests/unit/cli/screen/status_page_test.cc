// The status page and its server: what is said, that it needs nothing but itself, and where it is
// served.
#include "cli/screen/status_page.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include "cli/run/run_metrics.h"
#include "cli/screen/status_server.h"

namespace crowdsurf::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Screen AnyScreen() {
  Screen screen;
  screen.job = "charlm<script>";
  screen.strategy = "Moshpit";
  screen.elapsed = 75;
  screen.progress = 0.425;
  screen.target = "850k of 2M samples";
  screen.seconds_left = 100;
  screen.radices = {2, 4};
  screen.wanted = 2;
  screen.training = 1;
  screen.samples_per_second = 12'345;
  screen.loss = 2.345;
  screen.rounds = 96;
  screen.repaired = 4;
  screen.preemptions = 3;
  screen.news = {"3s  charlm-1-0 is taken by the spot market"};
  ScreenWorker trains;
  trains.name = "charlm-0-0";
  trains.state = "Training";
  trains.cell = {0, 3};
  trains.steward = true;
  trains.http = "127.0.0.1:4711";
  ScreenWorker starts;
  starts.name = "charlm-1-1";
  starts.index = 1;
  starts.state = "Starting";
  screen.workers = {trains, starts};
  return screen;
}

TEST(StatusPageTest, SaysEverythingInWords) {
  const std::string page = StatusHtml(AnyScreen());
  for (const char* words :
       {"1 of 2", "12.3k", "2.345", "96", "42 %: 850k of 2M samples", "1m 40s left",
        "Training, steward", "<td>0, 3</td>", "grid of 2 x 4", "Starting",
        "http://127.0.0.1:4711/metrics", "is taken by the spot market"}) {
    EXPECT_THAT(page, HasSubstr(words));
  }
}

TEST(StatusPageTest, IsSelfContainedEscapedAndLoadsItselfAgainWhileTheRunGoesOn) {
  const std::string page = StatusHtml(AnyScreen());
  EXPECT_THAT(page, HasSubstr("http-equiv=\"refresh\""));
  EXPECT_THAT(page, HasSubstr("charlm&lt;script&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<link")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
}

// What a screen reader goes by; a page that loses one of these is broken for somebody.
TEST(StatusPageTest, HasTheStructureThatAScreenReaderNeeds) {
  const std::string page = StatusHtml(AnyScreen());
  for (const char* part :
       {"<html lang=\"en\">", "<title>", "<main>", "<h1>", "<caption>",
        "<th scope=\"col\">state</th>", "<th scope=\"row\">", "aria-labelledby=\"progress\""}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
}

TEST(StatusServerTest, ServesThePageAndTheMetricsOnTheLoopback) {
  MetricRegistry registry;
  RunMetrics metrics(registry);
  metrics.Show(AnyScreen());
  metrics.Show(AnyScreen());
  auto server = StatusServer::Start(0, registry);
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->Show("a page");
  httplib::Client client("127.0.0.1", (*server)->port());
  const auto page = client.Get("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->body, "a page");
  EXPECT_THAT(page->get_header_value("Content-Type"), HasSubstr("text/html"));
  const auto figures = client.Get("/metrics");
  ASSERT_TRUE(figures);
  EXPECT_THAT(figures->body, HasSubstr("crowdsurf_run_workers_training 1"));
  EXPECT_THAT(figures->body, HasSubstr("crowdsurf_run_preemptions_total 3"));
  EXPECT_EQ(client.Get("/nothing")->status, 404);
}

TEST(StatusServerTest, ATakenPortIsAnErrorThatNamesTheFlag) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  socklen_t size = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const int port = ntohs(address.sin_port);
  MetricRegistry registry;
  const auto server = StatusServer::Start(port, registry);
  EXPECT_TRUE(absl::IsFailedPrecondition(server.status()));
  EXPECT_THAT(std::string(server.status().message()),
              HasSubstr("--http-port: port " + std::to_string(port)));
  close(listener);
}

}  // namespace
}  // namespace crowdsurf::cli
