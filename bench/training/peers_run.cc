#include "bench/training/peers_run.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

namespace crowdsurf::bench {
namespace {

Glance GlanceAt(const simulator::DescentLook& look, size_t judged, bool averages,
                Workload& workload) {
  Glance glance;
  glance.seconds = look.at.seconds();
  glance.steps = static_cast<double>(look.steps);
  glance.bytes = static_cast<double>(look.tensor_bytes);
  glance.pair_ends = static_cast<double>(look.pair_ends);
  glance.living = static_cast<int>(look.living.size());
  std::vector<std::span<const float>> models;
  const size_t count = std::min(judged, look.living.size());
  for (size_t i = 0; i < count; ++i) {
    // Evenly chosen among the living.
    const auto& worker = look.living[i * look.living.size() / count];
    models.push_back(averages ? worker.averaged : worker.model);
  }
  glance.score = workload.Judge(models);
  return glance;
}

}  // namespace

std::vector<Glance> RunPeers(const PeersOptions& options, Workload& workload) {
  simulator::DescentOptions descent = options.descent;
  const double seconds = workload.flops_a_step() / options.flops_per_second;
  const auto task = workload.TaskOf(0);
  descent.tensors = MatricesOf(task->table());
  // As every trainer of ours says them; IST alone uses them.
  descent.units = task->table().units();
  descent.chunk_elements = options.chunk_elements;
  descent.steps = options.steps;
  descent.worker = [&](int node) {
    const double slowness = options.slowness ? options.slowness(node) : 1;
    // A worker that joins later goes on in the job's schedule.
    const int later = node - options.descent.members;
    const Duration start =
        later < 0 ? Duration() : options.descent.joins[static_cast<size_t>(later)];
    return simulator::DescentWorker{
        std::make_unique<TaskModel>(workload.TaskOf(static_cast<uint32_t>(node)), options.step,
                                    static_cast<uint32_t>(node),
                                    static_cast<uint64_t>(start.seconds() / seconds)),
        Seconds(seconds * slowness)};
  };
  std::vector<Glance> glances;
  descent.on_look = [&](const simulator::DescentLook& look) {
    // At the end all are judged.
    const bool last = look.at + descent.look_every > descent.end ||
                      std::all_of(look.living.begin(), look.living.end(), [&](const auto& worker) {
                        return options.steps > 0 && worker.steps >= options.steps;
                      });
    glances.push_back(GlanceAt(look, last ? look.living.size() : options.judged,
                               options.judge_averages, workload));
  };
  simulator::RunDescent(descent);
  return glances;
}

simulator::DescentOptions QuietDescent(const worker::AveragingConfig& averaging, int members,
                                       uint64_t seed) {
  simulator::DescentOptions descent;
  descent.averaging = averaging;
  descent.members = members;
  descent.seed = seed;
  descent.deaths = {};
  descent.victims = {};
  descent.joins = {};
  // No bound: the caller's end is one.
  descent.max_events = UINT64_MAX;
  return descent;
}

}  // namespace crowdsurf::bench
