#include "cli/report.h"

namespace crowdsurf::cli {
std::string ReportHtml(const ReportInput& input) { return "<title>" + input.job + "</title>"; }
}  // namespace crowdsurf::cli
