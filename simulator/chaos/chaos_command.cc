#include "simulator/chaos/chaos_command.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <utility>

#include "simulator/engine/seeds.h"
#include "simulator/engine/trace.h"
#include "simulator/round/round_scenario.h"

namespace crowdsurf::simulator {
namespace {

constexpr uint64_t kMaxReplays = 4;  // of each statement

struct SeedResult {
  RoundReport round;
  ChaosReport chaos;
  Duration step;  // of the slowest trainer
  bool long_steps = false;
};

// One round and a whole job with every seed (docs/simulator.md).
SeedResult RunSeed(const ChaosCommand& command, uint64_t seed, LogSink* log) {
  ChaosScenario scenario = DrawChaos(seed, command.min_members, command.max_members);
  if (command.outer) scenario.outer = DrawOuter(seed);
  if (command.ist) DrawIst(scenario);
  if (command.int8) DrawInt8(scenario);
  if (command.one_round) DrawOneRound(scenario);
  DrawGraph(command.strategy, scenario);
  scenario.gives_first = command.first;
  scenario.log = log;
  return {.round = RunRound(DrawScenario(seed)),
          .chaos = RunChaos(scenario),
          .step = scenario.trainer.step_time * (1 + scenario.speed_spread),
          .long_steps = scenario.trainer.step_time >= kLongStep};
}

// Text of a replay: one line an entry.
class StringSink : public LogSink {
 public:
  explicit StringSink(std::string& out) : out_(out) {}
  void Write(LogLevel, std::string_view module, std::string_view message,
             std::initializer_list<LogField> fields) override {
    out_.append(module).append(": ").append(message);
    for (const LogField& field : fields)
      out_.append(" ").append(field.key).append("=").append(field.value);
    out_ += '\n';
  }

 private:
  std::string& out_;
};

// For JSON; a replay is one line.
std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

void AddHealing(const SeedResult& result, uint64_t seed, ChaosTotals& totals) {
  const double healed = result.chaos.healed_after.seconds();
  const double steps = healed / result.step.seconds();
  double& slowest = result.long_steps ? totals.max_healed_steps : totals.max_healed_seconds;
  const double measured = result.long_steps ? steps : healed;
  if (measured <= slowest) return;
  slowest = measured;
  (result.long_steps ? totals.slowest_steps_seed : totals.slowest_seed) = seed;
}

// Counts what a run has broken; the first runs of each statement can be replayed.
void AddViolations(const Violations& violations, const std::string& replay, const char* world,
                   ChaosTotals& totals) {
  if (violations.none()) return;
  for (const auto& [statement, count] : violations.counts()) {
    totals.violations[statement] += count;
    if (++totals.replays_of[statement] > kMaxReplays) continue;
    const auto word = std::find_if(
        violations.words().begin(), violations.words().end(),
        [&, what = statement](const std::string& w) { return w.starts_with(what + ":"); });
    totals.replays.push_back(absl::StrCat(replay, "  # ", world, ": ",
                                          word == violations.words().end() ? statement : *word));
  }
}

std::string AsJson(const ChaosCommand& command, const ChaosTotals& totals) {
  std::string violations;
  uint64_t broken = 0;
  for (const auto& [statement, count] : totals.violations) {
    absl::StrAppend(&violations, violations.empty() ? "" : ",", "\"", statement, "\":", count);
    broken += count;
  }
  std::string replays;
  for (const std::string& replay : totals.replays)
    absl::StrAppend(&replays, replays.empty() ? "" : ",", "\"", Escaped(replay), "\"");
  std::string outer;
  if (command.outer)
    outer = absl::StrFormat(
        ",\"outer\":true,\"outer_steps\":%d,\"outer_begins\":%d,\"outer_fetched\":%d",
        totals.outer_steps, totals.outer_begins, totals.outer_fetched);
  if (command.ist)
    outer = absl::StrFormat(",\"ist\":true,\"subnet_rounds\":%d,\"subnet_kept\":%d,\"fetched\":%d",
                            totals.subnet_rounds, totals.subnet_kept, totals.outer_fetched);
  if (command.int8)
    absl::StrAppend(&outer, ",\"int8\":true,\"changes\":", totals.changes,
                    command.outer ? "" : absl::StrCat(",\"fetched\":", totals.outer_fetched));
  if (command.one_round)
    absl::StrAppend(&outer, ",\"one_round\":true,\"group_means\":", totals.group_means,
                    ",\"counts\":", totals.counts);
  if (!command.strategy.empty())
    absl::StrAppendFormat(
        &outer,
        ",\"strategy\":\"%s\",\"mixed\":%d,\"counted\":%d,\"exchanges\":%d,\"one_sided\":%d",
        command.strategy, totals.mixing.results, totals.mixing.counted, totals.mixing.exchanges,
        totals.mixing.one_sided);
  if (command.first)
    absl::StrAppendFormat(
        &outer, ",\"first_given\":%d,\"first_taken\":%d,\"first_own\":%d,\"first_compared\":%d",
        totals.first.given, totals.first.taken, totals.first.own, totals.first.compared);
  return absl::StrFormat(
      "{\"seed\":%d,\"seeds\":%d,\"members\":[%d,%d],\"broken\":%d,\"violations\":{%s},"
      "\"replay\":[%s],\"trace\":\"%016x\",\"events\":%d,\"survivors\":%d,\"delivered\":%d,"
      "\"in_parts\":%d,\"exact\":%d,\"counts_checked\":%d,\"described\":%d,\"repaired\":%d,"
      "\"kept\":%d,"
      "\"branches\":%d,\"healed_"
      "seconds_max\":%.3f,\"slowest_seed\":%d,\"healed_steps_max\":%.1f,"
      "\"slowest_steps_seed\":%d%s}\n",
      command.seed, totals.runs, command.min_members, command.max_members, broken, violations,
      replays, totals.trace, totals.events, totals.survivors, totals.delivered, totals.in_parts,
      totals.exact, totals.counts_checked, totals.described, totals.repaired, totals.kept,
      totals.branches, totals.max_healed_seconds, totals.slowest_seed, totals.max_healed_steps,
      totals.slowest_steps_seed, outer);
}

std::string AsText(const ChaosCommand& command, const ChaosTotals& totals) {
  std::string text = absl::StrFormat(
      "%d seeds from %d, %d to %d members: %d events, %d survivors, %d averagings delivered (%d "
      "recomputed), %d rounds repaired, %d kept, %d branches\nslowest healing %.1f s (seed %d); "
      "where steps are long, %.1f steps (seed %d); "
      "trace %016x\n",
      totals.runs, command.seed, command.min_members, command.max_members, totals.events,
      totals.survivors, totals.delivered, totals.exact, totals.repaired, totals.kept,
      totals.branches, totals.max_healed_seconds, totals.slowest_seed, totals.max_healed_steps,
      totals.slowest_steps_seed, totals.trace);
  if (command.outer)
    absl::StrAppend(&text, totals.outer_steps, " outer steps, ", totals.outer_begins,
                    " bases begun, ", totals.outer_fetched, " fetched\n");
  if (command.ist)
    absl::StrAppend(&text, totals.subnet_rounds, " rounds of sub-networks, ", totals.subnet_kept,
                    " values that nobody covered, ", totals.outer_fetched, " bases fetched\n");
  if (command.int8)
    absl::StrAppend(&text, totals.changes, " averagings of changes, ", totals.outer_fetched,
                    " bases fetched\n");
  if (command.one_round)
    absl::StrAppend(&text, totals.group_means, " means of groups taken, ", totals.counts,
                    " counts of samples\n");
  if (!command.strategy.empty())
    absl::StrAppend(&text, totals.mixing.results, " results of neighbours, ",
                    totals.mixing.exchanges, " exchanges compared, ", totals.mixing.one_sided,
                    " of one end alone, ", totals.mixing.counted, " averagings counted\n");
  if (command.first)
    absl::StrAppend(&text, totals.first.given, " first parameters given, ", totals.first.taken,
                    " taken, ", totals.first.own, " starts from own ones, ", totals.first.compared,
                    " compared\n");
  if (totals.violations.empty()) return text + "no statement was broken\n";
  for (const auto& [statement, count] : totals.violations)
    absl::StrAppend(&text, "BROKEN ", statement, ": ", count, "\n");
  for (const std::string& replay : totals.replays) absl::StrAppend(&text, "replay: ", replay, "\n");
  return text;
}

}  // namespace

ChaosTotals RunSeeds(const ChaosCommand& command) {
  const auto results =
      ForEachSeed<SeedResult>(command.seed, command.seeds, command.threads,
                              [&](uint64_t seed) { return RunSeed(command, seed, nullptr); });
  ChaosTotals totals;
  Trace trace;
  // In the order of the seeds, so that the trace does not depend on the threads.
  for (const SeedResult& result : results) {
    const RoundReport& round = result.round;
    const ChaosReport& chaos = result.chaos;
    const std::string replay =
        absl::StrCat("crowdsurf simulate chaos --seed ", command.seed + totals.runs,
                     " --seeds 1 --members ", command.min_members, "..", command.max_members,
                     command.outer ? " --outer" : "", command.ist ? " --ist" : "",
                     command.int8 ? " --int8" : "", command.one_round ? " --one-round" : "",
                     command.strategy.empty() ? "" : " --strategy " + command.strategy,
                     command.first ? " --first" : "");
    ++totals.runs;
    AddViolations(round.violations, replay, "one round", totals);
    AddViolations(chaos.violations, replay, "whole job", totals);
    trace.Add(round.trace);
    trace.Add(chaos.trace);
    totals.events += round.events + chaos.events;
    totals.survivors += static_cast<uint64_t>(chaos.survivors);
    totals.delivered += chaos.delivered;
    totals.exact += chaos.exact;
    totals.in_parts += chaos.in_parts;
    totals.counts_checked += chaos.counts_checked;
    totals.described += chaos.described;
    totals.repaired += chaos.repaired;
    totals.kept += chaos.kept;
    totals.branches += chaos.branches;
    totals.outer_steps += chaos.outer_steps;
    totals.outer_begins += chaos.outer_begins;
    totals.outer_fetched += chaos.outer_fetched;
    totals.changes += chaos.changes;
    totals.group_means += chaos.group_means;
    totals.counts += chaos.counts;
    totals.subnet_rounds += chaos.subnet_rounds;
    totals.subnet_kept += chaos.subnet_kept;
    totals.mixing.results += chaos.mixing.results;
    totals.mixing.counted += chaos.mixing.counted;
    totals.mixing.exchanges += chaos.mixing.exchanges;
    totals.mixing.one_sided += chaos.mixing.one_sided;
    totals.first.given += chaos.first.given;
    totals.first.taken += chaos.first.taken;
    totals.first.own += chaos.first.own;
    totals.first.compared += chaos.first.compared;
    AddHealing(result, command.seed + totals.runs - 1, totals);
  }
  totals.trace = trace.hash();
  return totals;
}

int RunSimulateChaos(const ChaosCommand& command, std::string& output) {
  if (command.seeds < 1 || command.min_members < 1 || command.max_members > kMostMembers ||
      command.min_members > command.max_members) {
    output =
        absl::StrCat("--seeds: at least 1; --members: MIN..MAX within 1..", kMostMembers, "\n");
    return 2;
  }
  if (ChaosScenario any; !command.strategy.empty() && !DrawGraph(command.strategy, any)) {
    output = absl::StrCat("--strategy: \"", command.strategy, "\" is none of");
    for (const std::string_view name : kGraphStrategies) output.append(" ").append(name);
    output += "\n";
    return 2;
  }
  // Runs of a seed are equal, so it runs once more for its log.
  if (command.log) {
    StringSink sink(output);
    RunSeed(command, command.seed, &sink);
  }
  const ChaosTotals totals = RunSeeds(command);
  output += command.json ? AsJson(command, totals) : AsText(command, totals);
  return totals.violations.empty() ? 0 : 1;
}

}  // namespace crowdsurf::simulator
