#include "base/edge/metrics_page.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

namespace crowdsurf {
namespace {

prometheus::ClientMetric Convert(const MetricValue& value, MetricKind kind) {
  prometheus::ClientMetric out;
  for (const auto& [name, text] : value.labels) out.label.push_back({name, text});
  if (kind == MetricKind::kCounter) out.counter.value = value.value;
  if (kind == MetricKind::kGauge) out.gauge.value = value.value;
  for (size_t i = 0; i < value.cumulative.size(); ++i) {
    const bool last = i == value.upper_bounds.size();
    const double bound = last ? std::numeric_limits<double>::infinity() : value.upper_bounds[i];
    out.histogram.bucket.push_back({value.cumulative[i], bound});
    // Ends as the count of the bucket +Inf, which has all.
    out.histogram.sample_count = value.cumulative[i];
  }
  out.histogram.sample_sum = value.sum;
  return out;
}

prometheus::MetricType TypeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return prometheus::MetricType::Counter;
    case MetricKind::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricKind::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

// Field `index` (from 1, proc(5)) of /proc/self/stat; the second may hold spaces.
double StatField(int index) {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(text.substr(name_end + 1));
  std::string word;
  // The name is field 2, so the rest begins with field 3.
  for (int i = 3; i <= index; ++i) rest >> word;
  return std::strtod(word.c_str(), nullptr);
}

// Of the machine, Unix seconds.
double BootTime() {
  std::ifstream file("/proc/stat");
  std::string word;
  while (file >> word) {
    double seconds = 0;
    if (word == "btime" && file >> seconds) return seconds;
  }
  return 0;
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double OpenFiles() {
  std::error_code ignored;
  double count = 0;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", ignored);
       it != std::filesystem::directory_iterator(); it.increment(ignored)) {
    ++count;
  }
  return count > 0 ? count - 1 : 0;  // without the one that reads the folder
}

}  // namespace

std::string RenderMetrics(const MetricRegistry& registry) {
  std::vector<prometheus::MetricFamily> families;
  for (const MetricFamily& family : registry.Collect()) {
    if (family.series.empty()) continue;
    prometheus::MetricFamily out;
    out.name = family.name;
    out.help = family.help;
    out.type = TypeOf(family.kind);
    for (const MetricValue& value : family.series) {
      out.metric.push_back(Convert(value, family.kind));
    }
    families.push_back(std::move(out));
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

MetricsPage::MetricsPage(MetricRegistry& registry, const std::string& program)
    : registry_(registry),
      cpu_seconds_(registry.AddCounter("process_cpu_seconds_total",
                                       "CPU time of this process, user and system.")),
      resident_bytes_(registry.AddGauge("process_resident_memory_bytes",
                                        "Memory of this process that is in RAM, shared too.")),
      virtual_bytes_(
          registry.AddGauge("process_virtual_memory_bytes", "Address space of this process.")),
      open_fds_(registry.AddGauge("process_open_fds", "File descriptors open in this process.")),
      max_fds_(
          registry.AddGauge("process_max_fds", "Most file descriptors this process may open.")),
      start_seconds_(registry.AddGauge("process_start_time_seconds",
                                       "When this process started, Unix time.")) {
  registry
      .AddGauge("crowdsurf_build_info", "1; which program of which version answers.",
                {{"program", program}, {"version", CROWDSURF_VERSION}})
      .Set(1);
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  // Field 22 of stat is the start in clock ticks after the boot (proc(5)).
  start_seconds_.Set(BootTime() + StatField(22) / ticks);
}

void MetricsPage::ReadProcess() {
  // A counter only adds: what was used since the last look.
  cpu_seconds_.Add(std::max(0.0, CpuSeconds() - cpu_seconds_.value()));
  // Fields of stat: 23 is vsize in bytes, 24 is rss in pages (proc(5)).
  virtual_bytes_.Set(StatField(23));
  resident_bytes_.Set(StatField(24) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  open_fds_.Set(OpenFiles());
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  max_fds_.Set(static_cast<double>(limit.rlim_cur));
}

std::string MetricsPage::Render() {
  const std::lock_guard lock(mutex_);
  ReadProcess();
  for (const auto& hook : hooks_) hook();
  return RenderMetrics(registry_);
}

}  // namespace crowdsurf
