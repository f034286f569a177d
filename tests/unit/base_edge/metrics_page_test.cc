// Metrics in Prometheus' text format, whose lines are written out here.
#include "base/edge/metrics_page.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>

namespace crowdsurf {
namespace {

TEST(MetricsPageTest, EveryKindOfMetricIsWrittenAsTheTextFormatWantsIt) {
  MetricRegistry metrics;
  metrics.AddCounter("crowdsurf_x_total", "Things.", {{"reason", "a\"b"}}).Add(2);
  metrics.AddGauge("crowdsurf_y_bytes", "Size.").Set(-1.5);
  Histogram& histogram = metrics.AddHistogram("crowdsurf_z_seconds", "Time.", {0.1, 1});
  histogram.Observe(0.05);
  histogram.Observe(0.5);
  histogram.Observe(7);
  const std::string text = RenderMetrics(metrics);
  for (const char* line :
       {"# HELP crowdsurf_x_total Things.\n", "# TYPE crowdsurf_x_total counter\n",
        "crowdsurf_x_total{reason=\"a\\\"b\"} 2\n", "# TYPE crowdsurf_y_bytes gauge\n",
        "crowdsurf_y_bytes -1.5\n", "# TYPE crowdsurf_z_seconds histogram\n",
        "crowdsurf_z_seconds_count 3\n", "crowdsurf_z_seconds_sum 7.55",
        "crowdsurf_z_seconds_bucket{le=\"+Inf\"} 3\n"}) {
    EXPECT_THAT(text, testing::HasSubstr(line));
  }
  // Cumulative.
  EXPECT_THAT(text, testing::HasSubstr("le=\"1\"} 2\n"));
}

// Compared with what other system calls say about this process.
TEST(MetricsPageTest, AProcessTellsItsMemoryTimeAndFiles) {
  MetricRegistry metrics;
  MetricsPage page(metrics, "test");
  int asked = 0;
  page.Before([&] { ++asked; });
  const std::string text = page.Render();
  EXPECT_EQ(asked, 1);
  EXPECT_THAT(text, testing::HasSubstr("crowdsurf_build_info{program=\"test\",version=\""));
  std::ifstream statm("/proc/self/statm");
  double pages = 0, resident = 0;
  statm >> pages >> resident;
  statm.close();
  const double page_size = static_cast<double>(sysconf(_SC_PAGESIZE));
  EXPECT_NEAR(metrics.Value("process_resident_memory_bytes"), resident * page_size, 8e6);
  EXPECT_NEAR(metrics.Value("process_virtual_memory_bytes"), pages * page_size, 64e6);
  const double cpu = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  EXPECT_NEAR(metrics.Value("process_cpu_seconds_total"), cpu, 0.5);
  const auto now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch());
  // A test that started more than a day ago does not exist; a start in the future neither.
  EXPECT_GT(metrics.Value("process_start_time_seconds"), now.count() - 86'400);
  EXPECT_LE(metrics.Value("process_start_time_seconds"), now.count() + 1);
  const double files = metrics.Value("process_open_fds");
  std::ifstream one_more("/proc/self/statm");
  (void)page.Render();
  EXPECT_EQ(metrics.Value("process_open_fds"), files + 1);
}

}  // namespace
}  // namespace crowdsurf
