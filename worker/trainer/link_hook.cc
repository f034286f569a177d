#include "worker/trainer/link_hook.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/check.h"

namespace crowdsurf::trainer {
namespace {

using worker::LinkRole;
using worker::LinkTensor;

LinkTensor ToLink(const TensorSpec& spec) {
  LinkTensor tensor;
  tensor.name = spec.name;
  tensor.shape.assign(spec.shape.begin(), spec.shape.end());
  tensor.units = spec.units;
  return tensor;
}

// Parameters first, then each moment of all tensors: the order of Gather.
std::vector<LinkTensor> TensorsOf(Training& training) {
  std::vector<LinkTensor> tensors;
  const auto& specs = training.task().table().tensors();
  tensors.reserve(specs.size() * (1 + training.optimizer().moments()));
  for (const TensorSpec& spec : specs) tensors.push_back(ToLink(spec));
  for (size_t i = 0; i < training.optimizer().moments(); ++i) {
    for (const TensorSpec& spec : specs) {
      LinkTensor moment = ToLink(spec);
      moment.name = absl::StrCat("optimizer.moment", i, ".", spec.name);
      moment.role = LinkRole::kOptimizerState;
      tensors.push_back(std::move(moment));
    }
  }
  return tensors;
}

}  // namespace

StatusOr<std::unique_ptr<StepHook>> LinkHook::Connect(std::string dir,
                                                      std::vector<std::string> metrics,
                                                      Duration patience) {
  worker::LinkClientOptions options;
  options.metrics = metrics;
  options.gradients = true;
  ASSIGN_OR_RETURN(auto client, worker::LinkClient::Connect(std::move(dir), patience, options));
  return std::unique_ptr<StepHook>(new LinkHook(std::move(client), std::move(metrics), patience));
}

StatusOr<StepDecision> LinkHook::Start(Training& training) {
  ASSIGN_OR_RETURN(const worker::LinkRegistration job, client_->Register(TensorsOf(training)));
  const size_t parameters = training.parameters().size();
  // What the job averages shows in the length: the parameters alone, or all moments behind them.
  with_moments_ = job.elements == parameters * (1 + training.optimizer().moments()) &&
                  job.elements != parameters;
  if (job.elements != parameters && !with_moments_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job averages ", job.elements, " values, this model has ", parameters,
                     ": spec.averaging.roles must name Parameter"));
  }
  gradients_ = job.gradients;
  if (gradients_) training.GatherOnly();
  // First the seed's parameters, in place of any that were loaded: the job decides what is trained.
  // Start may put its state in theirs.
  training.Restart(job.seed, job.worker);
  client_->SetOpaque([&training] { return training.Save(); },
                     [&training](ByteView state) { return training.Load(state); });
  ASSIGN_OR_RETURN(const worker::StepOutcome outcome, client_->Start(Gather(training), patience_));
  std::printf("worker %s of job %s, seed %llu%s\n", job.worker.c_str(), job.job.c_str(),
              static_cast<unsigned long long>(job.seed),
              outcome.adopted ? ", joined with the job's state" : "");
  std::fflush(stdout);
  return Decide(training, outcome);
}

StatusOr<StepDecision> LinkHook::OnStep(Training& training, const BatchResult& batch) {
  if (gradients_) return Decide(training, GradientDone(training, batch));
  const worker::StepOutcome outcome =
      client_->StepDone(batch.samples, batch.loss, Gather(training));
  return Decide(training, outcome);
}

worker::StepOutcome LinkHook::GradientDone(Training& training, const BatchResult& batch) {
  return client_->GradientDone(batch.samples, batch.loss, training.gradient(),
                               training.parameters(),
                               [&](std::span<const float> mean) { training.Apply(mean, 1); });
}

std::span<float> LinkHook::Gather(Training& training) {
  // No copy: the link reads the vector, and writes results into it, in place.
  if (!with_moments_) return training.parameters();
  gathered_.assign(training.parameters().begin(), training.parameters().end());
  for (size_t i = 0; i < training.optimizer().moments(); ++i) {
    const auto moment = training.optimizer().moment(i);
    gathered_.insert(gathered_.end(), moment.begin(), moment.end());
  }
  return gathered_;
}

void LinkHook::Scatter(Training& training) {
  if (!with_moments_) return;
  auto from = gathered_.begin();
  const auto take = [&](std::span<float> to) {
    std::copy_n(from, to.size(), to.begin());
    from += static_cast<std::ptrdiff_t>(to.size());
  };
  take(training.parameters());
  for (size_t i = 0; i < training.optimizer().moments(); ++i) take(training.optimizer().moment(i));
  training.optimizer().RepairMoments();
}

StatusOr<StepDecision> LinkHook::Decide(Training& training, const worker::StepOutcome& outcome) {
  if (outcome.applied || outcome.adopted) Scatter(training);
  // After the result of what was trained under the earlier ones.
  ASSIGN_OR_RETURN(const auto sets, client_->TakeIndexSets());
  if (sets) RETURN_IF_ERROR(training.TrainUnits(*sets));
  if (outcome.agent_lost != agent_lost_) {
    agent_lost_ = outcome.agent_lost;
    std::printf(agent_lost_ ? "the agent is gone, training goes on alone\n"
                            : "the agent is back\n");
    std::fflush(stdout);
  }
  return StepDecision{.stop = outcome.stop, .lr_scale = outcome.lr_scale};
}

void LinkHook::OnMetrics(std::span<const Metric> metrics) {
  for (const Metric& m : metrics) {
    // A task always reports the same names, so each was registered.
    const auto it = std::find(metrics_.begin(), metrics_.end(), m.name);
    CHECK(it != metrics_.end());
    client_->SetMetric(static_cast<size_t>(it - metrics_.begin()), m.value);
  }
}

void LinkHook::OnStopped() { client_->AcknowledgeStop(); }

}  // namespace crowdsurf::trainer
