#include "cli/screen/status_page.h"

#include <cmath>
#include <cstdio>

#include "cli/screen/chart.h"
#include "cli/screen/html_parts.h"

namespace crowdsurf::cli {
namespace {

constexpr char kPageStyle[] = R"css(
:root{color-scheme:light dark;--page:#fff;--text:#1b2430;--soft:#4d5967;--grid:#d5dbe2;--tile:#f5f7f9;--bar:#0b7a75}
@media(prefers-color-scheme:dark){:root{--page:#12161c;--text:#e6ebf1;--soft:#a6b2bf;--grid:#37414d;--tile:#1b222b;
--bar:#4fd1c5}}
body{background:var(--page);color:var(--text);font:16px/1.5 system-ui,sans-serif;max-width:960px;margin:2rem auto;
padding:0 1rem}
h1{margin:0;font-size:1.9rem}h2{font-size:1.2rem;margin:2rem 0 .4rem}.soft{color:var(--soft);margin:.2rem 0 1rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(135px,1fr));gap:.7rem;margin:0;padding:0}
.tiles div{background:var(--tile);border-radius:8px;padding:.7rem .9rem}
.tiles dt{font-size:.82rem;color:var(--soft)}.tiles dd{margin:0;font-size:1.45rem;font-variant-numeric:tabular-nums}
progress{width:100%;height:1.1rem;accent-color:var(--bar)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}caption{text-align:left;color:var(--soft)}
td,th{text-align:left;padding:.35rem .6rem;border-bottom:1px solid var(--grid)}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
a{color:inherit}
)css";

std::string LiveTiles(const Screen& screen) {
  return "<dl class=\"tiles\">" +
         Tile("workers training",
              std::to_string(screen.training) + " of " + std::to_string(screen.wanted)) +
         Tile("samples a second", Short(screen.samples_per_second)) +
         Tile("loss", Figure(screen.loss, 3)) +
         Tile("rounds", Short(static_cast<double>(screen.rounds))) +
         Tile("rounds repaired", std::to_string(screen.repaired)) +
         Tile("rounds failed", std::to_string(screen.failed)) +
         Tile("preemptions", std::to_string(screen.preemptions)) + "</dl>\n";
}

std::string ProgressBar(const Screen& screen) {
  // A job that ends by a metric has no share that could be told.
  if (!screen.progress) return {};
  const std::string percent = std::to_string(static_cast<int>(*screen.progress * 100));
  std::string words = percent + " %: " + screen.target;
  if (screen.seconds_left) words += ", about " + Span(*screen.seconds_left) + " left";
  return "<h2 id=\"progress\">Progress</h2>\n<progress aria-labelledby=\"progress\" max=\"100\" "
         "value=\"" +
         percent + "\">" + percent + " %</progress>\n<p class=\"soft\">" + Escape(words) + "</p>\n";
}

std::string Cell(const std::vector<int>& cell) {
  std::string text;
  for (const int coordinate : cell) text += (text.empty() ? "" : ", ") + std::to_string(coordinate);
  return text.empty() ? "–" : text;
}

std::string Row(const ScreenWorker& worker) {
  const std::string name = Escape(worker.name);
  std::string row = "<tr><th scope=\"row\">";
  row += worker.http.empty() ? name
                             : "<a href=\"http://" + Escape(worker.http) + "/metrics\">" + name +
                                   "<span> metrics</span></a>";
  row += "</th><td>" + Escape(worker.state) + (worker.steward ? ", steward" : "") + "</td><td>" +
         Cell(worker.cell) + "</td><td class=\"number\">" + Figure(worker.steps_per_second, 1) +
         "</td><td class=\"number\">" + Short(worker.samples_per_second) +
         "</td><td class=\"number\">" + Figure(worker.loss, 3) + "</td></tr>\n";
  return row;
}

std::string Workers(const Screen& screen) {
  std::string grid;
  for (const int radix : screen.radices)
    grid += (grid.empty() ? "" : " x ") + std::to_string(radix);
  // With a tabindex, so that the keyboard can scroll a table wider than the screen.
  std::string out =
      "<h2>Workers</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"Workers\"><table>\n<caption>" +
      std::to_string(screen.workers.size()) + " workers" +
      (grid.empty() ? "" : " in a grid of " + grid) +
      "</caption>\n<thead><tr><th scope=\"col\">worker</th><th scope=\"col\">state</th>"
      "<th scope=\"col\">cell</th><th scope=\"col\" class=\"number\">steps/s</th>"
      "<th scope=\"col\" class=\"number\">samples/s</th>"
      "<th scope=\"col\" class=\"number\">loss</th></tr></thead>\n<tbody>\n";
  for (const ScreenWorker& worker : screen.workers) out += Row(worker);
  return out + "</tbody></table></div>\n";
}

std::string News(const Screen& screen) {
  if (screen.news.empty()) return {};
  std::string out = "<h2>What happened last</h2>\n<ul>\n";
  for (const std::string& news : screen.news) out += "<li>" + Escape(news) + "</li>\n";
  return out + "</ul>\n";
}

}  // namespace

std::string StatusHtml(const Screen& screen) {
  // Without a script: the page may hold none, and every browser can reload.
  const std::string refresh =
      "<meta http-equiv=\"refresh\" content=\"" + std::to_string(kStatusRefresh_s) + "\">";
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">" +
      refresh + "<title>" + Escape(screen.job) + " – Crowdsurf</title><style>" + kPageStyle +
      "</style></head>\n<body><main>\n<h1>" + Escape(screen.job) + "</h1>\n<p class=\"soft\">" +
      Escape(screen.strategy) + ", " + Span(screen.elapsed) +
      " of training; this page loads itself again every " + std::to_string(kStatusRefresh_s) +
      " seconds. <a href=\"/metrics\">Metrics of this run</a></p>\n";
  if (!screen.ending.empty()) {
    out += "<p role=\"status\"><strong>" + Escape(screen.ending) + "</strong></p>\n";
  }
  return out + LiveTiles(screen) + ProgressBar(screen) + Workers(screen) + News(screen) +
         "</main></body></html>\n";
}

}  // namespace crowdsurf::cli
