// The inside of Agent. Not for others to include.
//
// Everything below "host thread" is touched by the host loop alone. Files: agent.cc (start, run,
// stop), agent_actions.cc (executes the core's actions), agent_inputs.cc (what reaches the core),
// agent_trainer.cc (what the trainer does), agent_units.cc (its sub-network), agent_view.cc
// (summary, metrics, progress).
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <optional>

#include "base/down_evidence.h"
#include "base/edge/host_loop.h"
#include "base/edge/http_server.h"
#include "base/edge/metrics_page.h"
#include "coordinator-free-dht/edge/certificate_keeper.h"
#include "coordinator-free-dht/edge/identity.h"
#include "coordinator-free-dht/edge/transport.h"
#include "worker/core/link/loss_report_schedule.h"
#include "worker/core/link/start_wait.h"
#include "worker/core/link/trainer_pulse.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/config.h"
#include "worker/core/port/inputs.h"
#include "worker/core/port/peer_summary.h"
#include "worker/edge/agent/agent.h"
#include "worker/edge/agent/agent_summary.h"
#include "worker/edge/agent/death_reporter.h"
#include "worker/edge/agent/external_events.h"
#include "worker/edge/agent/lost_members.h"
#include "worker/edge/agent/slow_work.h"
#include "worker/edge/link/link_server.h"
#include "worker/edge/metrics/agent_metrics.h"
#include "worker/edge/metrics/averaging_clock.h"
#include "worker/edge/state/checkpoint_keeper.h"
#include "worker/edge/state/outer_memory.h"
#include "worker/edge/state/state_exchange.h"
#include "worker/edge/tensor/chunk_plane.h"
#include "worker/edge/tensor/mix_plane.h"
#include "worker/edge/tensor/send_plane.h"
#include "worker/edge/tensor/tensor_transport.h"

namespace crowdsurf::dht {
class DhtService;
struct WatchUpdate;
}  // namespace crowdsurf::dht

namespace crowdsurf::worker {

class Peer;

// Reason of an agent's end that the operator looks for (docs/signals.md: termination message).
inline constexpr char kTargetMet[] = "target met";

class Agent::Impl : public TimerSource {
 public:
  Impl(AgentOptions options, JobConfig config, LogSink* sink, LogLevel least,
       StrategyFactory strategies);
  ~Impl() override;

  Status Start();
  int Run();
  void AskToLeave();
  void Kill();
  const PeerId& id() const { return identity_->id(); }
  std::string peer_endpoint() const { return grpc_->endpoint(); }
  std::string http_endpoint() const;
  const MetricRegistry& registry() const { return registry_; }

  // TimerSource.
  Time NextDeadline() const override;
  void OnTimer(Time now, WallTime wall) override;

 private:
  using Input = std::function<void(Time, Actions&)>;

  // ---- starting (agent.cc) ----
  Status StartLink();
  Status StartCertificate();
  Status StartTransports();
  void MakeTensorTransport();
  void MakePlanes();
  void MakeStateExchange();
  Status StartHttp();
  Status StartExternalEvents();
  Status WriteEndpoints() const;
  PeerConfig MakePeerConfig() const;
  void WriteTermination() const;
  // ... of an agent that could not start: `waiting_for` is what it did not get.
  void WriteFailedStart(std::string_view waiting_for) const;
  void WriteTerminationText(const std::string& text) const;
  void End(const std::string& reason, int code);  // the loop ends after this input

  // ---- inputs (agent_inputs.cc) ----
  // Gives `input` to the peer and executes its actions; inputs that arise meanwhile come after.
  void Feed(Time now, WallTime wall, Input input);
  // The inputs that came before run now.
  void StartPeer(Time now, WallTime wall);
  void FeedLocal(Time now, WallTime wall, LocalEvent event);
  void RunInputs(Time now, WallTime wall);
  // ... of the trainer (agent_trainer.cc)
  void OnLinkEvent(Time now, WallTime wall, const LinkEvent& event);
  void OnRegistered(Time now, WallTime wall, const link::TrainerRegistered& event);
  void TakeSeatAgain(Time now, WallTime wall);
  void NameStep(TrainerRegistered& trainer);
  void OnStepTaken(Time now, WallTime wall);
  void OnPublishRefused(Time now, WallTime wall, const link::PublishRefused& refused);
  void FeedRegistered(Time now, WallTime wall, const link::TrainerRegistered& event);
  void FeedTrainer(Time now, WallTime wall, TrainerRegistered trainer);
  // What the core is told of trainer_, as of one that begins anew. Pre: there is one.
  TrainerRegistered ForCore() const;
  Published ForCore(const link::Published& published) const;
  // The newest good checkpoint of this job goes into inbox 0, elsewhere; OnRestored follows. False:
  // there is nothing to look for.
  bool StartRestore(const link::TrainerRegistered& event);
  struct Restored {
    CheckpointInfo info;
    StateManifest manifest;
    std::optional<HeldOpaque> opaque;
    HeldVelocity velocity;
  };
  void OnRestored(Time now, WallTime wall, std::optional<Restored> restored);
  bool HashOpaque(const std::shared_ptr<const HeldState>& state, uint64_t number);
  void OnExternalEvent(Time now, WallTime wall, const ExternalEvent& event);
  void OnConfigText(Time now, WallTime wall, const std::string& text);
  void OnTensorFrame(Time now, WallTime wall, const PeerId& from, const TensorHeader& header,
                     TensorPayload payload);
  void OnTensorDown(Time now, WallTime wall, const PeerId& peer, DownEvidence evidence);
  void OnDown(Time now, WallTime wall, const PeerId& peer, DownEvidence evidence);
  void OnWatched(Time now, WallTime wall, const std::string& key, const dht::WatchUpdate& update);
  void OnDrained(Time now, WallTime wall, const PeerId& peer);
  // Tokens of tensor connections in the clear, over the control channel.
  void AskForToken(const PeerId& peer, uint64_t number);
  void OnTokenWord(const dht::Contact& from, ByteView body);
  void OnState(Time now, WallTime wall);  // a fetch may have ended
  void StartLeaving(Time now, WallTime wall, Duration within);

  // ---- actions (agent_actions.cc) ----
  void Execute(Time now, WallTime wall, const Actions& actions);
  void Do(Time now, WallTime wall, const Send& action);
  void Do(Time now, WallTime wall, const Introduce& action);
  void Do(Time now, WallTime wall, const GrantLeases& action);
  void Do(Time now, WallTime wall, const PutRecord& action);
  void Do(Time now, WallTime wall, const WatchKey& action);
  void Do(Time now, WallTime wall, const UnwatchKey& action);
  void Do(Time now, WallTime wall, const OpenBuffers& action);
  void Do(Time now, WallTime wall, const CloseBuffers& action);
  void Do(Time now, WallTime wall, const Chunk& action);
  void Do(Time now, WallTime wall, const SpeakChunk& action);
  void Do(Time now, WallTime wall, const RequestPublish& action);
  void Do(Time now, WallTime wall, const WakeAt& action);
  void Do(Time now, WallTime wall, const LetStart& action);
  void Do(Time now, WallTime wall, const Deliver& action);
  void Do(Time now, WallTime wall, const ReleaseOutbox& action);
  void Do(Time now, WallTime wall, const FetchState& action);
  void Do(Time now, WallTime wall, const WriteCheckpoint& action);
  void Do(Time now, WallTime wall, const RaiseStop& action);
  void Do(Time now, WallTime wall, const Leave& action);
  void Do(Time now, WallTime wall, const ReserveRegions& action);
  void Do(Time now, WallTime wall, const RunKernel& action);
  void Do(Time now, WallTime wall, const MixSend& action);
  void Do(Time now, WallTime wall, const DeliverMix& action);
  void Do(Time now, WallTime wall, const TellLrScale& action);
  void Do(Time now, WallTime wall, const JobCounted& action);
  void Do(Time now, WallTime wall, const PowerAction& action);
  void Do(Time now, WallTime wall, const MoveTrainer& action);
  void Do(Time now, WallTime wall, const TellTrainerUnits& action);
  void Do(Time now, WallTime wall, const OfferState& action);
  void Do(Time now, WallTime wall, const TellShare& action);
  // Units that wait for the trainer to take the ones before. After whatever may have ended that.
  void TellUnits();
  void Overwrite(Region region);  // a committed average that lay there is gone
  void DescribeAverage(Time now, WallTime wall, const Deliver& average);
  void CheckpointWhenDue(Time now, WallTime wall, const PeerSummary& summary);
  void TellMixSent(Time now, WallTime wall);  // the peer core
  void SubmitCheckpoint();
  void EndWhenJobIsOver(Time now);
  const char* WaitsForAtTheEnd(Time now) const;  // nullptr: for nothing more

  // ---- what is shown (agent_view.cc) ----
  void SampleProgress(Time now, WallTime wall);
  Progress ReadProgress();
  // A trainer that hangs gives its seat back, and takes it again when it steps on.
  void WatchTrainer(Time now, WallTime wall);
  void LogStacks();
  void UpdateGauges(const PeerSummary& summary);
  void ReportLost(Time now, const PeerSummary& summary);
  std::string SummaryText(Time now);
  void LookAtStart(Time now, const PeerSummary& summary);
  HttpServer::Reply ServeSummary();

  const AgentOptions options_;
  JobConfig config_;
  const StrategyFactory strategies_;
  const Logger log_;
  MetricRegistry registry_;
  AgentMetrics metrics_;
  HostLoop host_;
  AveragingClock clock_;
  std::unique_ptr<dht::Identity> identity_;
  std::unique_ptr<dht::CertificateKeeper> certificates_;
  std::unique_ptr<dht::PeerTransport> grpc_;
  std::unique_ptr<dht::DhtService> dht_;
  std::unique_ptr<TensorTransport> tensors_;
  std::unique_ptr<LinkServer> link_;
  std::unique_ptr<CheckpointStore> checkpoints_;
  std::unique_ptr<CheckpointKeeper> keeper_;
  std::unique_ptr<SlowWork> slow_;
  MetricsPage page_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<ExternalEvents> external_events_;
  std::unique_ptr<DeathReporter> deaths_;  // without a signer: none
  std::atomic<bool> ready_{false};
  std::atomic<bool> trainer_hangs_{false};
  std::atomic<bool> killed_{false};
  std::atomic<bool> started_{false};

  // ---- host thread ----
  std::unique_ptr<Peer> peer_;
  std::unique_ptr<SendPlane> sends_;
  std::unique_ptr<ChunkPlane> plane_;
  std::unique_ptr<MixPlane> mix_;
  std::unique_ptr<StateExchange> state_;
  std::deque<Input> inputs_;
  bool feeding_ = false;
  bool peer_started_ = false;
  dht::Remembered<PeerId, std::string> peer_endpoints_{SendPlane::kMaxPeers};  // introduced

  struct Trainer {
    Digest schema;
    uint64_t elements = 0;
    std::vector<LinkTensor> tensors;
    bool gives_first = false;
  };
  std::optional<Trainer> trainer_;
  std::optional<DataSpec> data_;  // that the trainer draws leases of; none: it draws none
  TrainerPulse pulse_;
  StartWait start_wait_;
  LostMembers lost_members_;
  LossReportSchedule loss_reports_;
  bool restore_tried_ = false, restoring_ = false;
  std::optional<link::TrainerRegistered> waits_for_restore_;
  std::optional<HeldOpaque> restored_opaque_;
  std::optional<Deliver> delivered_;  // the last average, and where it lies
  // Gradients: the step that the trainer is asked to make or to adopt, until its parameters lie
  // there.
  std::optional<Deliver> stepping_;
  std::optional<WriteCheckpoint> write_after_step_;
  OuterMemory outer_;
  std::optional<TellTrainerUnits> units_;  // that the trainer has not been told yet
  AveragingId told_units_;                 // that it was told last
  std::optional<Region> mixed_;  // this worker has gone on from there by itself: its last result
  bool mixes_ = false;           // it has since delivered_, which is no checkpoint any more
  Bytes counted_ledger_;  // of the leases with the last averaging that only counted; empty: none
  std::optional<CheckpointKeeper::Job> checkpoint_;  // waits for the opaque state
  Time checkpoint_wait_until_ = Time::Infinite();
  size_t checkpoints_open_ = 0;
  bool gave_seat_back_ = false;         // for its bad snapshots, and has had no good one since
  int bad_snapshots_ = 0;               // in a row
  Time seat_again_ = Time::Infinite();  // when a trainer of bad snapshots is let in again
  std::string bad_snapshot_;  // what was wrong with the trainer's last snapshot; empty: nothing
  std::optional<SeatRefusal> seat_refused_;  // as seen last
  std::string write_error_;  // of the last checkpoint or model; empty: it was written
  Time checkpoint_at_;  // when this agent, as steward, writes the next one; unset: no average yet

  Time progress_at_ = Time::Infinite();  // when the trainer's words are read next
  LinkCounters counters_;                // as read last
  struct Rate {                          // of own samples
    Time since;
    double samples = 0, per_second = 0;
  } rate_;
  double started_unix_ = 0;
  std::optional<double> first_step_unix_;

  bool deals_leases_ = false;  // this job
  bool leaving_ = false;
  Time leave_by_ = Time::Infinite();
  bool stop_raised_ = false, stop_acknowledged_ = false;
  Time stop_raised_at_;
  Time linger_until_ = Time::Infinite();
  std::string waits_for_;  // at the end of the job, as logged last
  std::string end_reason_;
  int exit_code_ = 0;
  bool ended_ = false;
};

}  // namespace crowdsurf::worker
