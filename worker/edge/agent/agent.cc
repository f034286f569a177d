// Agent: starting, running, ending. (agent_impl.h lists the other files.)
#include "worker/edge/agent/agent.h"

#include <openssl/rand.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/digest.h"
#include "base/edge/files.h"
#include "base/edge/http_host.h"
#include "coordinator-free-dht/edge/dht_service.h"
#include "worker/core/peer/peer.h"
#include "worker/edge/agent/agent_impl.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kMailbox = 65'536;                // bulk is bounded by bytes, not by this
constexpr Duration kSignerPatience = Seconds(60);  // then the supervisor starts us again

uint64_t Entropy() {
  uint64_t seed = 0;
  CHECK_EQ(RAND_bytes(reinterpret_cast<unsigned char*>(&seed), sizeof seed), 1);
  return seed;
}

double UnixSeconds(WallTime wall) { return static_cast<double>(wall.nanoseconds()) * 1e-9; }

}  // namespace

// ---- the public face ---------------------------------------------------------------------------

Agent::Agent(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Agent::~Agent() = default;

StatusOr<std::unique_ptr<Agent>> Agent::Start(AgentOptions options, JobConfig config, LogSink* sink,
                                              LogLevel least, StrategyFactory strategies) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(config), sink, least,
                                     std::move(strategies));
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Agent>(new Agent(std::move(impl)));
}

int Agent::Run() { return impl_->Run(); }
void Agent::AskToLeave() { impl_->AskToLeave(); }
void Agent::Kill() { impl_->Kill(); }
const PeerId& Agent::id() const { return impl_->id(); }
std::string Agent::peer_endpoint() const { return impl_->peer_endpoint(); }
std::string Agent::http_endpoint() const { return impl_->http_endpoint(); }
const MetricRegistry& Agent::metrics() const { return impl_->registry(); }

// ---- starting ----------------------------------------------------------------------------------

Agent::Impl::Impl(AgentOptions options, JobConfig config, LogSink* sink, LogLevel least,
                  StrategyFactory strategies)
    : options_(std::move(options)),
      config_(std::move(config)),
      strategies_(std::move(strategies)),
      log_(sink, "agent", least),
      metrics_(registry_),
      host_(kMailbox, registry_, log_.For("host")),
      clock_([this] { return host_.Now(); }, metrics_),
      page_(registry_, "crowdsurf-worker"),
      pulse_(options_.hang_after > 0 ? Seconds(options_.hang_after) : Duration::Infinite()),
      start_wait_(host_.Now()),
      started_unix_(UnixSeconds(HostLoop::Wall())) {}

Agent::Impl::~Impl() {
  // Whatever posts to the host or calls into another part goes first.
  external_events_.reset();
  deaths_.reset();
  if (http_) http_->Stop();
  slow_.reset();
  keeper_.reset();
  if (certificates_) certificates_->Stop();
  if (tensors_) tensors_->Stop();
  if (grpc_) grpc_->Stop();
  link_.reset();
  dht_.reset();
}

Status Agent::Impl::Start() {
  ASSIGN_OR_RETURN(identity_, dht::Identity::Open(std::filesystem::path(options_.agent_dir)));
  // First, so that a SIGTERM ends a start that waits for its signer.
  RETURN_IF_ERROR(StartExternalEvents());
  slow_ = std::make_unique<SlowWork>(host_, registry_);
  if (const Status linked = StartLink(); !linked.ok()) {
    WriteFailedStart("volume");
    return linked;
  }
  // Before the certificate: who looks at a job that does not train sees that the signer is missing.
  RETURN_IF_ERROR(StartHttp());
  if (const Status certified = StartCertificate(); !certified.ok()) {
    WriteFailedStart("signer");
    return certified;
  }
  RETURN_IF_ERROR(StartTransports());
  peer_ = std::make_unique<Peer>(MakePeerConfig(), Rng(Entropy()), log_.For("peer"), registry_);
  host_.AddSource(this);
  // Last: who finds the file can dial what it names.
  RETURN_IF_ERROR(WriteEndpoints());
  CHECK(host_.Post([this](Time now, WallTime wall) { StartPeer(now, wall); }));
  started_ = true;
  metrics_.agent_crashes.Add(static_cast<double>(options_.crashes));
  log_.Info("agent listens", {{"worker", options_.worker},
                              {"peer", identity_->id().brief()},
                              {"boot", identity_->boot()},
                              {"peer_endpoint", grpc_->endpoint()},
                              {"tensor_endpoint", tensors_->endpoint()},
                              {"http_endpoint", http_endpoint()}});
  return absl::OkStatus();
}

Status Agent::Impl::StartLink() {
  LinkServerOptions options;
  options.dir = options_.dir;
  options.job = options_.job;
  options.worker = options_.worker;
  options.seed = ByteReader(Sha256(AsBytes(options_.job)).view()).U64();  // equal at all workers
  options.roles = config_.roles;
  options.needs_units = NeedsOf(config_.averaging).unit_groups;
  options.overlap = LinkOverlapOf(config_.averaging);
  options.gradients = AveragesGradients(config_.averaging);
  options.hang_after = options_.hang_after;
  options.require_memory = options_.require_memory;
  const auto sink = [this](LinkEvent event) {
    (void)host_.Post([this, event = std::move(event)](Time now, WallTime wall) {
      OnLinkEvent(now, wall, event);
    });
  };
  ASSIGN_OR_RETURN(link_, LinkServer::Start(options, sink, log_.For("link"), registry_));
  if (!options_.checkpoint_dir.empty()) {
    checkpoints_ = std::make_unique<CheckpointStore>(
        options_.checkpoint_dir, options_.worker, static_cast<size_t>(config_.checkpoint_retain),
        log_.For("checkpoint"), registry_, CheckpointSeals(*identity_, options_.job));
    // On the keeper's thread, so it only posts.
    const auto done = [this](const CheckpointKeeper::Job&, const Status& status) {
      (void)host_.Post([this, error = std::string(status.message())](Time now, WallTime) {
        --checkpoints_open_;
        write_error_ = error;
        EndWhenJobIsOver(now);
      });
    };
    keeper_ = std::make_unique<CheckpointKeeper>(*checkpoints_, metrics_, done, log_);
  }
  return absl::OkStatus();
}

Status Agent::Impl::StartCertificate() {
  dht::SignerOptions signer;
  signer.url = options_.signer;
  signer.job = options_.job;
  signer.worker = options_.worker;
  certificates_ = std::make_unique<dht::CertificateKeeper>(*identity_, signer, Entropy(), registry_,
                                                           log_.For("certificate"));
  RETURN_IF_ERROR(certificates_->WaitForFirst(kSignerPatience));
  certificates_->Start();
  if (!options_.signer.empty()) {
    deaths_ = std::make_unique<DeathReporter>(
        DeathReporterOptions{.url = options_.signer, .agent_dir = options_.agent_dir}, Entropy(),
        registry_, log_.For("deaths"));
  }
  return absl::OkStatus();
}

Status Agent::Impl::StartTransports() {
  dht::TransportOptions grpc;
  grpc.listen = options_.listen;
  grpc.port = options_.peer_port;
  grpc.advertise = options_.advertise;
  grpc.job = options_.job;
  grpc_ = std::make_unique<dht::PeerTransport>(grpc, *identity_, host_, registry_,
                                               log_.For("transport"));
  // Handlers of both transports run on the host's thread, as all that touches dht_ and peer_.
  grpc_->SetHandlers(
      {[this](Time now, WallTime wall, const dht::Contact& from, dht::ChannelKind kind,
              Bytes body) {
         if (kind == dht::ChannelKind::kDht) return dht_->OnMessage(now, wall, from, body);
         if (kind == dht::ChannelKind::kTensor) return OnTokenWord(from, body);
         Feed(now, wall, [this, from = from.id, body = std::move(body)](Time at, Actions& out) {
           peer_->OnMessage(at, from, body, out);
         });
       },
       [](Time, WallTime, const dht::Contact&) {},
       [this](Time now, WallTime wall, const dht::Contact& peer, DownEvidence evidence) {
         dht_->OnPeerDown(now, wall, peer, evidence);
         // An ask or an answer may be lost with the stream. Of a dead peer OnDown forgets all.
         if (!peer.id.none() && evidence == DownEvidence::kUnreachable)
           tensors_->LoseToken(peer.id);
         if (!peer.id.none()) OnDown(now, wall, peer.id, evidence);
       },
       [this](Time now, WallTime wall, const dht::PublicKey& key, WallTime said,
              Duration round_trip) { dht_->OnClock(now, wall, key, said, round_trip); }});
  RETURN_IF_ERROR(grpc_->Start());
  dht_ =
      std::make_unique<dht::DhtService>(dht::DhtHost{host_, *grpc_, *identity_}, dht::NodeConfig(),
                                        Entropy(), registry_, log_.For("dht"));
  MakeTensorTransport();
  MakePlanes();
  MakeStateExchange();
  return tensors_->Start();
}

void Agent::Impl::MakeTensorTransport() {
  TensorTransportOptions tensor;
  tensor.job = options_.job;
  tensor.listen = options_.listen;
  tensor.port = options_.tensor_port;
  tensor.advertise = options_.advertise;
  tensor.threads = static_cast<size_t>(options_.tensor_threads);
  tensor.tls = options_.tensor_tls == "Required";
  tensor.tokens = !tensor.tls;
  tensor.relay = &grpc_->relay();
  tensor.old_boot = [this](const dht::PublicKey& key, uint64_t boot) {
    return grpc_->IsOldBoot(key, boot);
  };
  tensor.clock = &clock_;
  tensors_ =
      std::make_unique<TensorTransport>(tensor, *identity_, host_, registry_, log_.For("tensor"));
  tensors_->SetHandlers(
      {[this](Time now, WallTime wall, const PeerId& from, const TensorHeader& header,
              TensorPayload payload) {
         OnTensorFrame(now, wall, from, header, std::move(payload));
       },
       [this](Time now, WallTime wall, const PeerId& peer, DownEvidence evidence) {
         OnTensorDown(now, wall, peer, evidence);
       },
       [this](Time now, WallTime wall, const PeerId& peer) { OnDrained(now, wall, peer); },
       [this](Time, WallTime, const PeerId& peer, uint64_t number) { AskForToken(peer, number); },
       [this](Time now, WallTime wall, const PeerId& peer) {
         Feed(now, wall, [this, peer](Time at, Actions& out) { peer_->OnRenewed(at, peer, out); });
       }});
  if (tensor.tokens)
    log_.Warning("tensors travel in the clear: whoever is on their way can read and change them",
                 {{"tensor_tls", options_.tensor_tls}});
}

void Agent::Impl::MakePlanes() {
  const auto write = [this](Region region) {
    const std::span<float> inbox = link_->inbox(region == Region::kInboxA ? 0 : 1);
    if (region == Region::kSpare) return outer_.Spare(inbox.size());
    if (region == Region::kVelocity) return outer_.Velocity(inbox.size());
    if (region == Region::kRest) return outer_.Rest(inbox.size());
    return inbox;
  };
  const RegionMemory memory{[this, write](Region region) -> std::span<const float> {
                              if (region == Region::kOutbox) return link_->outbox();
                              return write(region);
                            },
                            write};
  sends_ = std::make_unique<SendPlane>(*tensors_, metrics_);
  plane_ = std::make_unique<ChunkPlane>(*tensors_, *sends_, memory, metrics_, &clock_);
  const MixPlane::Core core{
      [this](const MixArrived& chunk) { return peer_->PlaceMix(chunk); },
      [this](const PeerId& to, MixTag tag, uint64_t sequence, uint32_t chunk) {
        return peer_->DescribeMix(to, tag, sequence, chunk);
      }};
  mix_ = std::make_unique<MixPlane>(*sends_, memory, core, metrics_);
}

void Agent::Impl::MakeStateExchange() {
  const StateExchangeHost exchange{
      [this](int inbox) { return link_->inbox(inbox); },
      [this] { return outer_.velocity_values(); },
      [this](const PeerId& to, SharedBytes payload) {
        return plane_->SendStateFrame(host_.Now(), to, std::move(payload));
      },
      [this] {
        if (!trainer_) return false;
        link_->RequestOpaque();
        return true;
      },
      [this](uint64_t bytes) { return link_->MakeRoom(bytes); },
      [this](const auto& state, uint64_t number) { return HashOpaque(state, number); }};
  state_ = std::make_unique<StateExchange>(exchange, metrics_, registry_, log_);
  state_->SetExact(AveragesGradients(config_.averaging));
}

Status Agent::Impl::StartHttp() {
  using Request = HttpServer::Request;
  using Reply = HttpServer::Reply;
  http_ = std::make_unique<HttpServer>(
      HttpServer::Options{"agent", options_.listen, options_.http_port}, registry_);
  // Kubelet's probes read flags: neither the host thread nor a slow scraper delays them.
  constexpr auto kAtOnce = HttpServer::Runs::kAtOnce;
  constexpr auto kOnPool = HttpServer::Runs::kOnPool;
  http_->Get("/healthz", kAtOnce, [this](const Request&) {
    return started_ ? Reply{200, "ok\n"} : Reply{503, "no certificate yet\n"};
  });
  http_->Get("/readyz", kAtOnce, [this](const Request&) {
    if (!ready_) return Reply{503, "not seated yet\n"};
    return grpc_->answers() ? Reply{200, "ok\n"}
                            : Reply{503, "the peer port answers no handshake\n"};
  });
  http_->Get("/trainerz", kAtOnce, [this](const Request&) {
    return trainer_hangs_ ? Reply{503, "the trainer makes no steps\n"} : Reply{200, "ok\n"};
  });
  http_->Get("/summary", kOnPool, [this](const Request& request) {
    // Names, stacks and paths of a local run are not for a page that a browser shows.
    return NamesAnAddress(request.Header("host")) ? ServeSummary()
                                                  : Reply{421, "ask for it by an address\n"};
  });
  http_->Get("/metrics", kOnPool, [this](const Request&) {
    return Reply{200, page_.Render(), MetricsPage::kContentType};
  });
  return http_->Start();
}

Status Agent::Impl::StartExternalEvents() {
  ExternalEventsOptions options;
  options.agent_dir = options_.agent_dir;
  options.cluster_dir = options_.cluster_dir;
  options.grace = Seconds(options_.grace_period);
  const auto sink = [this](ExternalEvent event) {
    // Nobody knows this agent yet, and its start may be waiting for a signer: there is nothing to
    // hand over, and nothing that could be asked to end.
    if (!started_ && std::holds_alternative<TerminationAsked>(event)) {
      log_.Info("asked to end before the start was over");
      std::_Exit(0);
    }
    (void)host_.Post([this, event = std::move(event)](Time now, WallTime wall) {
      OnExternalEvent(now, wall, event);
    });
  };
  ASSIGN_OR_RETURN(external_events_,
                   ExternalEvents::Start(options, sink, log_.For("events"), registry_));
  return absl::OkStatus();
}

std::string Agent::Impl::http_endpoint() const {
  const std::string& host = options_.advertise.empty() ? options_.listen : options_.advertise;
  const bool v6 = host.find(':') != std::string::npos;
  return absl::StrCat(v6 ? "[" : "", host, v6 ? "]:" : ":", http_->port());
}

PeerConfig Agent::Impl::MakePeerConfig() const {
  PeerConfig config;
  config.job = options_.job;
  config.worker = options_.worker;
  config.id = identity_->id();
  config.peer_endpoint = grpc_->endpoint();
  config.tensor_endpoint = tensors_->endpoint();
  config.http_endpoint = http_endpoint();
  config.on_demand = options_.capacity == "OnDemand";
  config.zone = options_.zone;
  config.started_unix_ms = static_cast<int64_t>(started_unix_ * 1e3);
  config.averaging = config_.averaging;
  config.chunk_elements = kChunkElements;
  config.strategies = strategies_;
  return config;
}

Status Agent::Impl::WriteEndpoints() const {
  const nlohmann::json endpoints = {{"id", identity_->id().hex()},
                                    {"peer", grpc_->endpoint()},
                                    {"tensor", tensors_->endpoint()},
                                    {"http", http_endpoint()}};
  return WriteFileAtomically(options_.agent_dir + "/endpoints", endpoints.dump() + "\n");
}

// ---- running and ending ------------------------------------------------------------------------

int Agent::Impl::Run() {
  host_.Run();
  ready_ = false;
  if (killed_) return 1;
  external_events_.reset();
  keeper_.reset();  // finishes what was accepted
  WriteTermination();
  log_.Info("agent ends", {{"reason", end_reason_}, {"code", exit_code_}});
  return exit_code_;
}

void Agent::Impl::AskToLeave() {
  (void)host_.Post(
      [this](Time now, WallTime wall) { StartLeaving(now, wall, Seconds(options_.grace_period)); });
}

void Agent::Impl::Kill() {
  // Nothing is executed or sent from here on: peers see closed connections, as of a killed process.
  killed_ = true;
  tensors_->Stop();
  grpc_->Stop();
  host_.RequestStop(Duration());
}

void Agent::Impl::End(const std::string& reason, int code) {
  if (std::exchange(ended_, true)) return;
  // A kubelet ends the agent when the trainer has ended: what ended the job is still its target.
  end_reason_ = stop_raised_ ? kTargetMet : reason;
  exit_code_ = code;
  // Ends the wait of a preStop hook (`crowdsurf-worker leave`).
  link_->LeaveDone();
  host_.RequestStop(Milliseconds(200));
}

void Agent::Impl::WriteTermination() const {
  if (options_.termination_log.empty()) return;
  const PeerSummary summary = peer_->Summarize();
  const std::string text =
      TerminationJson({.reason = end_reason_,
                       .write_error = write_error_,
                       .averaging = summary.averaging,
                       .samples = summary.job_samples,
                       .step = summary.step,
                       .loss = summary.loss,
                       .waiting_for = std::string(start_wait_.cause()),
                       .waiting_seconds = start_wait_.waited(host_.Now()).seconds()});
  WriteTerminationText(text);
}

void Agent::Impl::WriteFailedStart(std::string_view waiting_for) const {
  if (options_.termination_log.empty()) return;
  WriteTerminationText(
      TerminationJson({.reason = "not started",
                       .write_error = {},
                       .loss = {},
                       .waiting_for = std::string(waiting_for),
                       .waiting_seconds = start_wait_.waited(host_.Now()).seconds()}));
}

void Agent::Impl::WriteTerminationText(const std::string& text) const {
  // A kubelet mounts the file itself into a folder that is not ours: it cannot be replaced.
  if (std::filesystem::exists(options_.termination_log)) {
    std::ofstream file(options_.termination_log, std::ios::trunc);
    if (file << text << std::flush) return;
  }
  const Status status = WriteFileAtomically(options_.termination_log, text);
  if (!status.ok()) log_.Warning("termination log not written", {{"error", status.ToString()}});
}

}  // namespace crowdsurf::worker
