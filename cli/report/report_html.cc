#include <algorithm>
#include <cstdio>

#include "cli/report/averaging_words.h"
#include "cli/report/report.h"
#include "cli/screen/chart.h"
#include "cli/screen/html_parts.h"
#include "cli/screen/live_view.h"

namespace crowdsurf::cli {
namespace {

// Inside the page, since a report is sent and opened as one file, without a network.
constexpr char kReportStyle[] = R"css(
:root{color-scheme:light dark;--page:#fff;--text:#1b2430;--soft:#5b6775;--grid:#e3e7ec;--tile:#f5f7f9;
--one:#0b7a75;--two:#c2560c;--train:#2a9d8f;--wait:#b9c2cc;--leave:#e9a23b;--taken:#c1272d}
@media(prefers-color-scheme:dark){:root{--page:#12161c;--text:#e6ebf1;--soft:#9aa7b5;--grid:#2a323c;--tile:#1b222b;
--one:#4fd1c5;--two:#f6a15b;--train:#2fb3a3;--wait:#4a5562;--leave:#d9932e;--taken:#ff6b6b}}
body{background:var(--page);color:var(--text);font:16px/1.5 system-ui,sans-serif;max-width:960px;margin:2rem auto;
padding:0 1rem}
h1{margin:0;font-size:1.9rem}h2{font-size:1.2rem;margin:2.2rem 0 .4rem}
.soft,figcaption,.legend{color:var(--soft)}.soft{margin:.2rem 0 1.4rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(135px,1fr));gap:.7rem;margin:0;padding:0}
.tiles div{background:var(--tile);border-radius:8px;padding:.7rem .9rem}
.tiles dt{font-size:.82rem;color:var(--soft)}.tiles dd{margin:0;font-size:1.45rem;font-variant-numeric:tabular-nums}
figure{margin:1.4rem 0}figcaption{font-weight:600;margin-bottom:.2rem;color:var(--text)}
svg{width:100%;height:auto;display:block}svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
.grid{stroke:var(--grid)}.mark{stroke:var(--taken);stroke-opacity:.45;stroke-dasharray:2 3}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.line.one{stroke:var(--one)}
.line.two{stroke:var(--two);stroke-dasharray:6 3}
.bar.training{fill:var(--train)}.bar.waiting{fill:var(--wait)}.bar.leaving{fill:var(--leave)}
.cross{stroke:var(--taken);stroke-width:2.5;fill:none}
.legend{font-size:.85rem;margin:.2rem 0 0 4.9rem}
.key{display:inline-block;width:.9em;height:.7em;border-radius:2px;margin:0 .35em 0 .8em}
.key.one{background:var(--one)}.key.two{background:var(--two)}.key.training{background:var(--train)}
.key.waiting{background:var(--wait)}.key.leaving{background:var(--leave)}.key.taken{background:var(--taken)}
blockquote,pre{background:var(--tile);border-left:4px solid var(--one);border-radius:0 8px 8px 0;margin:.6rem 0;
padding:.8rem 1.1rem;white-space:pre-wrap;font-family:ui-serif,Georgia,serif;font-size:1.05rem;overflow-wrap:anywhere}
pre{font-family:ui-monospace,monospace;font-size:.85rem;border-color:var(--taken)}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.35rem .6rem;border-bottom:1px solid var(--grid)}
th{font-weight:500;color:var(--soft);width:55%}
)css";

std::string FigureRow(const std::string& name, const std::string& value) {
  return "<tr><th scope=\"row\">" + Escape(name) + "</th><td>" + Escape(value) + "</td></tr>\n";
}

std::string Count(uint64_t number) { return std::to_string(number); }

std::vector<double> Preemptions(const ReportInput& input) {
  std::vector<double> marks;
  for (const WorkerLife& life : input.lives) {
    // From the notice on the worker is lost to the job; the machine goes later.
    const std::optional<double> at = life.noticed ? life.noticed : life.taken;
    if (at) marks.push_back(*at - input.launched);
  }
  return marks;
}

double EndOf(const ReportInput& input) {
  // A run that ended before its first point still has an axis.
  double end = 1;
  for (const RecordPoint& point : input.points) end = std::max(end, point.at - input.launched);
  return end;
}

std::string Membership(const ReportInput& input, double end) {
  // More rows would be a page of thin lines; the sentence below counts all workers.
  constexpr int kMaxRows = 64;
  Timeline timeline;
  timeline.id = "membership";
  timeline.title = "Who trained when";
  timeline.end = end;
  const int rows = std::min(input.replicas, kMaxRows);
  for (int row = 0; row < rows; ++row) timeline.rows.push_back("worker " + std::to_string(row));
  int taken = 0;
  for (const WorkerLife& life : input.lives) {
    // Of these the chart shows no bar, and the count of losses leaves them out.
    if (life.index >= rows) continue;
    const auto at = [&](const std::optional<double>& time) {
      return time ? *time - input.launched : end;
    };
    const double gone = std::min(at(life.taken), at(life.ended));
    // Instants come from several machines' clocks: a bar must not begin after its end.
    const double first = std::min(at(life.first_step), gone),
                 told = std::min(at(life.noticed), gone);
    timeline.bars.push_back(
        {life.index, life.created - input.launched, first, "waiting", life.name + " starts"});
    if (told > first) {
      timeline.bars.push_back(
          {life.index, first, told, "training",
           life.name + (life.with_state ? " trains, with its peers' state" : " trains")});
    }
    if (gone > told)
      timeline.bars.push_back({life.index, told, gone, "leaving", life.name + " was told"});
    // It ended by itself, which is no loss.
    if (!life.taken && !life.noticed) continue;
    ++taken;
    timeline.marks.push_back({life.index, life.taken ? at(life.taken) : gone,
                              life.name + " was taken after " + Span(gone)});
  }
  timeline.description = std::to_string(input.replicas) + " workers over " + Span(end) + "; " +
                         std::to_string(taken) + " times a worker was taken. Between " +
                         std::to_string(input.figures.workers_min) + " and " +
                         std::to_string(input.figures.workers_max) + " trained at a time.";
  return Draw(timeline);
}

Series LineOf(const ReportInput& input, const char* name, const char* style,
              std::optional<double> (*value)(const RecordPoint&)) {
  Series series{name, style, {}};
  for (const RecordPoint& point : input.points) {
    if (const auto y = value(point)) series.points.emplace_back(point.at - input.launched, *y);
  }
  return series;
}

std::string Ends(const Series& series, int digits) {
  if (series.points.empty()) return "nothing was measured";
  return "from " + Figure(series.points.front().second, digits) + " to " +
         Figure(series.points.back().second, digits);
}

std::string Charts(const ReportInput& input) {
  const double end = EndOf(input);
  const std::vector<double> marks = Preemptions(input);
  std::string out = Membership(input, end);
  // Not from zero: near the end of a training the loss hardly moves.
  LineChart loss{"loss", "Loss of the workers, mean", "", false, {}, marks, end};
  loss.series = {LineOf(input, "", "one", [](const RecordPoint& p) { return p.loss; })};
  loss.description = "Training loss " + Ends(loss.series[0], 3) + ".";
  LineChart rate{"throughput", "Samples a second, all workers", "", true, {}, marks, end};
  rate.series = {
      LineOf(input, "", "one", [](const RecordPoint& p) { return std::optional(p.rate); })};
  rate.description =
      "Throughput, " + Short(input.figures.samples_per_second) + " samples a second on average.";
  LineChart rounds{"rounds", "Seconds a round takes", "", true, {}, marks, end};
  rounds.series = {LineOf(input, "median", "one",
                          [](const RecordPoint& p) {
                            // Zero stands for no round yet; drawn, it would look like a round
                            // without any cost.
                            return p.round_p50 > 0 ? std::optional(p.round_p50) : std::nullopt;
                          }),
                   LineOf(input, "95 % take less", "two", [](const RecordPoint& p) {
                     return p.round_p95 > 0 ? std::optional(p.round_p95) : std::nullopt;
                   })};
  rounds.description = "Median " + Ends(rounds.series[0], 3) + " seconds, 95th percentile " +
                       Ends(rounds.series[1], 3) + " seconds.";
  return out + Draw(loss) + Draw(rate) + Draw(rounds);
}

std::string FigureTiles(const ReportInput& input) {
  const RunFigures& f = input.figures;
  std::string out = "<dl class=\"tiles\">";
  out += Tile("samples", Short(static_cast<double>(f.samples)));
  out += Tile("goodput", Figure(f.goodput, 3));
  out += Tile("preemptions", Count(f.preemptions));
  out += Tile("rounds failed", Count(f.rounds_failed));
  if (input.heldout) out += Tile("held-out bits per character", Figure(input.heldout, 3));
  out += Tile("replaced in (median)", Figure(f.replacement_p50, 2, " s"));
  return out + "</dl>\n";
}

std::string Figures(const ReportInput& input) {
  const RunFigures& f = input.figures;
  const auto share =
      f.averaging_stall_ratio ? std::optional(*f.averaging_stall_ratio * 100) : std::nullopt;
  std::string out = "<h2>Figures</h2>\n<table>\n";
  out += FigureRow("training took", Span(f.duration_seconds));
  out += FigureRow("start to the first step of every worker", Figure(f.start_seconds, 2, " s"));
  out += FigureRow("samples, and a second",
                   Count(f.samples) + ", " + Short(f.samples_per_second) + "/s");
  out += FigureRow("rounds completed", Count(f.rounds_completed));
  out += FigureRow("rounds repaired (a member was lost in them)", Count(f.rounds_repaired));
  out += FigureRow("rounds failed; after a loss",
                   Count(f.rounds_failed) + "; " + Count(f.rounds_failed_by_peer_loss));
  out += FigureRow("averaged vectors that differed", Count(f.hash_mismatches));
  if (f.apart_seconds > 0) {
    out += FigureRow("workers trained in several lineages, of which one is kept",
                     Span(f.apart_seconds));
  }
  out += FigureRow("loss of a worker to its replacement's first step, median and 95 %",
                   Figure(f.replacement_p50, 2, " s") + ", " + Figure(f.replacement_p95, 2, " s"));
  out += FigureRow("training stopped by averaging, share of time", Figure(share, 2, " %"));
  out += FigureRow("an averaging, mean of all workers", AveragingWords(f.averagings));
  out += FigureRow("workers training, least and most",
                   std::to_string(f.workers_min) + ", " + std::to_string(f.workers_max));
  if (input.heldout) {
    out += FigureRow("held-out bits per character", Figure(input.heldout, 3));
    out += FigureRow("trigram, bigram, unigram model of the same text",
                     Figure(input.trigram, 3) + ", " + Figure(input.bigram, 3) + ", " +
                         Figure(input.unigram, 3));
  }
  out += FigureRow("tensors between workers", input.tensors_in_clear
                                                  ? "in the clear (tls.mode: Disabled)"
                                                  : "encrypted (mutual TLS)");
  out += FigureRow("seed", Count(input.seed));
  if (!input.model_path.empty()) out += FigureRow("model", input.model_path);
  return out + "</table>\n";
}

}  // namespace

std::string ReportHtml(const ReportInput& input) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>" +
      Escape(input.job) + " – Crowdsurf</title><style>" + kReportStyle +
      "</style></head>\n<body><main>\n";
  out += "<h1>" + Escape(input.job) + "</h1>\n<p class=\"soft\">" + Escape(input.outcome) +
         " after " + Span(input.figures.duration_seconds) +
         " of training: " + Escape(input.strategy) + ", " + std::to_string(input.replicas) +
         " workers, groups of at most " + std::to_string(input.group_size) + "; " +
         Escape(input.market) + ".</p>\n";
  if (!input.message.empty()) out += "<pre>" + Escape(input.message) + "</pre>\n";
  out += FigureTiles(input);
  if (!input.sample.empty()) {
    out += "<h2>A fortune that the model made up</h2>\n<blockquote>" + Escape(input.sample) +
           "</blockquote>\n";
  }
  out += "<h2>The run</h2>\n<p class=\"soft\">Dashed lines are preemptions.</p>\n" + Charts(input);
  return out + Figures(input) + "</main></body></html>\n";
}

}  // namespace crowdsurf::cli
