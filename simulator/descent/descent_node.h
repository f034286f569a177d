// DescentNode: one agent and its trainer in a descent: an ActionHost whose trainer takes the steps
// of a model, an event each.
//
// No faults of its own but death, no checkers. Owner: DescentWorld; single sequence. Bounds: the
// ActionHost's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "simulator/descent/descent_average.h"
#include "simulator/descent/descent_trainer.h"
#include "simulator/host/action_host.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::simulator {

struct DescentPace {
  Duration step_time;
  uint64_t steps = 0;  // after these it takes no more; 0: goes on
};

class DescentNode : public ActionHost<float> {
 public:
  DescentNode(int node, Setup setup, DescentTrainer trainer, DescentPace pace, Outside& outside)
      : ActionHost(node, std::move(setup), outside), pace_(pace), trainer_(std::move(trainer)) {}

  const DescentTrainer& trainer() const { return trainer_; }
  Time last_result() const { return last_result_; }
  // What it took part in, by averaging.
  const std::map<worker::AveragingId, DescentAverage>& averages() const { return averages_; }

 private:
  worker::Progress Totals() const override;
  void RequestSnapshot(worker::AveragingId averaging) override;
  void Wake(const worker::WakeAt& marks) override;
  void StartTrainer() override;
  void AdoptState(worker::Region region) override;
  void GatherShare(const worker::TellShare& share) override;
  void GiveResult(worker::AveragingId ticket, worker::Region region) override;
  void ReleaseSnapshot(worker::AveragingId ticket) override;
  void SetLrScale(double scale) override { trainer_.SetLrScale(scale); }
  void TrainUnits(const worker::TellTrainerUnits& units) override {
    trainer_.TellUnits(units.by, units.sets);
  }
  void Execute(const worker::Action& action) override;

  void NextStep();
  void StepDone();
  void RingMarks();
  void SayPublished(worker::AveragingId ticket);

  const DescentPace pace_;
  DescentTrainer trainer_;
  bool running_ = false;
  std::optional<uint64_t> mark_;  // of steps: wake the agent
  Time last_result_;
  std::map<worker::AveragingId, DescentAverage> averages_;
  std::vector<float> mean_;  // that an outer optimizer has stepped to last
  bool changes_ = false;     // the last step was by a mean of changes
};

}  // namespace crowdsurf::simulator
