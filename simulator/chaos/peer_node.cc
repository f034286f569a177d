#include "simulator/chaos/peer_node.h"

#include <utility>

#include "base/digest.h"
#include "simulator/engine/node_config.h"

namespace crowdsurf::simulator {

using worker::Actions;

PeerNode::PeerNode(int index, PeerId id, worker::PeerConfig config, const ChaosScenario& scenario,
                   PeerOutside& outside, Rng rng, Violations& violations)
    : index_(index),
      id_(id),
      config_(std::move(config)),
      scenario_(scenario),
      outside_(outside),
      peer_rng_(rng.Fork("peer")),
      log_(index, scenario.log, outside.queue()),
      trainer_(index, TrainerOf(scenario, rng), rng.Fork("trainer"), violations),
      chunks_(index, outside.origins(), outside.round_checkers()) {
  for (RegionBuffer& region : regions_) region.Resize(scenario.trainer.elements);
}

TrainerOptions PeerNode::TrainerOf(const ChaosScenario& scenario, const Rng& rng) {
  TrainerOptions options = scenario.trainer;
  Rng speed = rng.Fork("speed");
  options.step_time = options.step_time * (1.0 + scenario.speed_spread * speed.UniformDouble());
  return options;
}

void PeerNode::Do(const std::function<void()>& input) {
  if (!alive_ || peer_ == nullptr) return;
  if (frozen_)
    while_frozen_.push_back(input);
  else
    input();
}

void PeerNode::Freeze() {
  log_.LoggerFor("host").Info("freezes");
  frozen_ = true;
}

void PeerNode::Thaw() {
  if (frozen_) log_.LoggerFor("host").Info("wakes");
  frozen_ = false;
  while (alive_ && !frozen_ && !while_frozen_.empty()) {
    const auto input = std::move(while_frozen_.front());
    while_frozen_.pop_front();
    input();
  }
}

void PeerNode::Kill() {
  if (!alive_) return;
  log_.LoggerFor("host").Info(left_ ? "left" : "dies");
  alive_ = false;
  while_frozen_.clear();
  outside_.OnDeath(index_);
}

void PeerNode::Start() {
  if (!alive_) return;
  peer_ = std::make_unique<worker::Peer>(config_, peer_rng_, log_.LoggerFor("peer"), metrics_);
  log_.LoggerFor("host").Info("starts", {{"id", id_.brief()}});
  Actions actions;
  peer_->Start(outside_.queue().now(), actions);
  Run(actions);
  outside_.queue().After(kRegisterDelay, [this] {
    Local(worker::TrainerRegistered{Sha256(AsBytes("schema")), scenario_.trainer.elements, true});
    TellProgress();
  });
}

// At leisure, as the agent's link does it.
void PeerNode::TellProgress() {
  if (!alive_) return;
  const Time now = outside_.queue().now();
  Local(worker::Progress{trainer_.Steps(now), trainer_.Samples(now), {}, {}});
  outside_.queue().After(kProgressEvery, [this] { TellProgress(); });
}

void PeerNode::OnBody(const PeerId& from, const std::shared_ptr<const Bytes>& body) {
  Do([this, from, body] {
    Actions actions;
    peer_->OnMessage(outside_.queue().now(), from, *body, actions);
    Run(actions);
  });
}

void PeerNode::OnRecords(const std::vector<worker::PeerRecord>& records) {
  Do([this, records] {
    Actions actions;
    peer_->OnRecords(outside_.queue().now(), records, actions);
    Run(actions);
  });
}

void PeerNode::OnDown(const PeerId& peer, DownEvidence evidence) {
  Do([this, peer, evidence] {
    log_.LoggerFor("host").Info(
        "is told that a peer is down",
        {{"peer", peer.brief()}, {"refused", evidence == DownEvidence::kRefused}});
    Actions actions;
    peer_->OnPeerDown(outside_.queue().now(), peer, evidence, actions);
    Run(actions);
  });
}

void PeerNode::Local(const worker::LocalEvent& event) {
  Do([this, event] {
    Actions actions;
    peer_->OnLocal(outside_.queue().now(), event, actions);
    Run(actions);
  });
}

void PeerNode::OnChunk(const PeerId& from, const worker::InstanceId& instance,
                       const ChunkFrame& frame) {
  Do([this, from, instance, frame] {
    const auto open = chunks_.Find(instance);
    worker::ChunkArrived arrived{
        .kind =
            frame.result ? worker::ChunkArrived::Kind::kResult : worker::ChunkArrived::Kind::kInput,
        .instance = instance,
        .from = from,
        .rank = frame.rank,
        .chunk = frame.chunk,
        .assigned = frame.assigned,
        .mask = frame.mask,
        .hash = frame.hash,
        .finite = !open || chunks_.IsSound(*open, frame.result, frame.chunk, frame.parcel)};
    if (frame.result && ContentHash(frame.parcel.wire, worker::ContentKey(instance)) != frame.hash)
      return;
    if (!frame.result && !chunks_.HasRoom(frame.parcel)) return;
    Actions actions;
    offered_ = &frame;
    const bool keep = peer_->OnChunk(outside_.queue().now(), arrived, actions);
    Run(actions);
    offered_ = nullptr;
    const auto now_open = chunks_.Find(instance);
    if (keep && now_open && alive_)
      chunks_.KeepInput(*now_open, frame.rank, frame.chunk, frame.assigned, frame.parcel);
  });
}

void PeerNode::Run(Actions& actions) {
  bool moved = false;
  for (const worker::Action& action : actions) {
    if (!Count()) return;
    Execute(action);
    if (!alive_) return;
    moved = moved || std::holds_alternative<worker::OpenBuffers>(action) ||
            std::holds_alternative<worker::CloseBuffers>(action) ||
            std::holds_alternative<worker::ReleaseOutbox>(action);
  }
  if (moved) outside_.OnRoundsMoved(index_);
  ArmTimer();
}

bool PeerNode::Count() {
  if (!alive_) return false;
  if (actions_ == dies_after_) {
    Kill();
    return false;
  }
  ++actions_;
  return true;
}

void PeerNode::ArmTimer() {
  if (scenario_.plant == ChaosPlant::kTimersPile && scenario_.planted == index_)
    for (int i = 0; i < 1'000; ++i) outside_.queue().After(Seconds(60), [] {});
  const Time deadline = peer_->NextDeadline();
  if (deadline.infinite() || deadline >= armed_) return;
  armed_ = deadline;
  outside_.queue().At(deadline, [this] {
    Do([this] {
      if (armed_ > outside_.queue().now()) return;
      armed_ = Time::Infinite();
      if (peer_->NextDeadline() <= outside_.queue().now()) {
        Actions actions;
        peer_->OnTimer(outside_.queue().now(), actions);
        Run(actions);
      } else {
        ArmTimer();
      }
    });
  });
}

}  // namespace crowdsurf::simulator
