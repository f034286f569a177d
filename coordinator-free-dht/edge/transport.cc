#include "coordinator-free-dht/edge/transport.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "coordinator-free-dht/edge/transport_core.h"

namespace crowdsurf::dht {
namespace {

int Milliseconds32(Duration d) { return static_cast<int>(d.milliseconds()); }

std::string Join(const std::string& host, int port) {
  const bool is_v6 = host.find(':') != std::string::npos && !host.starts_with('[');
  return is_v6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

// The body's bound is ours to count; gRPC's own is above it and ends the stream.
int MostOfAnEnvelope(const TransportOptions& options) {
  return static_cast<int>(std::min(options.message_bytes, kPieceBytes) + 4096);
}

grpc::ChannelArguments MakeArguments(const TransportOptions& options) {
  grpc::ChannelArguments args;
  // Certificates name the job's peers, not addresses, which change with each pod.
  args.SetString(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, "peer.crowdsurf");
  // A connection of its own for each dial, without the back-off that gRPC shares between channels.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // gRPC takes this for the time-out of a dial as well.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Milliseconds32(options.connect_timeout));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds32(options.keepalive));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds32(options.keepalive_timeout));
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Any number: a silent peer is told from a dead one by its pings alone.
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A proxy of the environment would not know the pods, and must not see their traffic.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetMaxReceiveMessageSize(MostOfAnEnvelope(options));
  return args;
}

Counter& DroppedFor(MetricRegistry& r, const char* reason) {
  return r.AddCounter("crowdsurf_peer_messages_dropped_total", "Messages dropped, by reason.",
                      {{"reason", reason}});
}
Counter& Boots(MetricRegistry& r, const char* result) {
  return r.AddCounter("crowdsurf_peer_boots_total",
                      "Keys that spoke under two boots, by what followed.", {{"result", result}});
}
Counter& DialsFailed(MetricRegistry& r, const char* reason) {
  return r.AddCounter("crowdsurf_peer_dial_failures_total", "Dials failed, by reason.",
                      {{"reason", reason}});
}

}  // namespace

TransportMetrics::TransportMetrics(MetricRegistry& r)
    : sent(r.AddCounter("crowdsurf_peer_messages_sent_total", "Messages written to peers.")),
      received(r.AddCounter("crowdsurf_peer_messages_received_total", "Messages from peers.")),
      sent_bytes(r.AddCounter("crowdsurf_peer_sent_bytes_total", "Bodies written to peers.")),
      received_bytes(r.AddCounter("crowdsurf_peer_received_bytes_total", "Bodies from peers.")),
      dropped_queue(DroppedFor(r, "queue_full")),
      dropped_size(DroppedFor(r, "too_large")),
      dropped_lost(DroppedFor(r, "connection_lost")),
      dropped_mailbox(DroppedFor(r, "mailbox_full")),
      invalid(r.AddCounter("crowdsurf_peer_frames_invalid_total",
                           "Frames that break the stream's protocol.")),
      impostors(r.AddCounter("crowdsurf_peer_impostors_total",
                             "Dials answered by another peer than the one expected there.")),
      boots_old(Boots(r, "refused")),
      boots_replaced(Boots(r, "replaced")),
      boots_forgotten(Boots(r, "refused")),
      dials(r.AddCounter("crowdsurf_peer_dials_total", "Connections tried.")),
      dials_refused(DialsFailed(r, "refused")),
      dials_failed(DialsFailed(r, "other")),
      registry(r),
      certificates_refused(r.AddCounter("crowdsurf_peer_certificates_refused_total",
                                        "Connections refused for their certificate.")),
      probes_failed(r.AddCounter("crowdsurf_peer_port_probes_failed_total",
                                 "Handshakes with the own peer port that nobody answered.")),
      refused(r),
      streams(r.AddGauge("crowdsurf_peer_streams", "Streams open or being opened.")) {}

Counter& TransportMetrics::StreamRefused(const char* reason) {
  return registry.AddCounter("crowdsurf_peer_streams_refused_total",
                             "Accepted streams that were ended before their hello, by reason.",
                             {{"reason", reason}});
}

Counter& TransportMetrics::Dropped(const char* reason) { return DroppedFor(registry, reason); }

TransportCore::TransportCore(TransportOptions options, const Identity& identity, HostLoop& host,
                             MetricRegistry& metrics, Logger logger)
    : handlers(std::make_shared<TransportHandlers>()),
      options_(std::move(options)),
      identity_(identity),
      host_(host),
      logger_(logger.For("transport")),
      metrics_(metrics),
      arguments_(MakeArguments(options_)),
      relay_(MakeRelayOptions(), metrics, logger_),
      joining_({.most = options_.joining_bytes}) {}

RelayOptions TransportCore::MakeRelayOptions() {
  RelayOptions options;
  options.config = options_.relay;
  options.self = identity_.id();
  options.channel_to = [this](const std::string& to) { return ChannelToNeighbour(to); };
  options.prove_peer = [this](const Contact& end) { Prove(end); };
  options.now = [this] { return host_.Now(); };
  options.dial_at = options_.dial_at;
  options.known = [this](const grpc::CallbackServerContext& context) { return Know(context); };
  return options;
}

Status TransportCore::Start() {
  if (options_.tls) {
    auto credentials = MakePeerCredentials(identity_, options_.job, metrics_.certificates_refused);
    if (!credentials.ok()) return credentials.status();
    credentials_ = *std::move(credentials);
  } else {
    credentials_ = MakeInsecureCredentials();
  }
  // Before the server, whose first call may already ask the relay.
  if (Status status = relay_.Start(); !status.ok()) return status;
  gate_ = std::make_unique<ConnectionGate>(MakeGateOptions());
  if (Status status = gate_->Open(); !status.ok()) return status;
  exchange_ = MakeExchangeService(weak_from_this());
  grpc::ServerBuilder builder;
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials_.server);
  // A neighbour's connections are carried in as many calls of one connection.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(options_.relay.carried + options_.streams_of_key));
  // Peers ping as they are told above; gRPC's default holds so many pings for an attack.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds32(options_.keepalive));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             Milliseconds32(options_.keepalive_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             Milliseconds32(options_.connect_timeout));  // who dials gives up then
  builder.SetMaxReceiveMessageSize(MostOfAnEnvelope(options_));
  builder.RegisterService(exchange_.get());
  builder.RegisterService(relay_.service());
  for (grpc::Service* service : services) builder.RegisterService(service);
  CountRefusedConnections(metrics_.refused);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::UnavailableError("gRPC's server does not start");
  endpoint = Join(options_.advertise.empty() ? options_.listen : options_.advertise, gate_->port());
  gate_->Serve([this](int listener, int connected) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listener;
    connection.fd = connected;
    acceptor_->HandleNewConnection(&connection);
  });
  probe_ = std::make_unique<PortProbe>(
      PortProbe::Options{options_.probe_period, options_.connect_timeout,
                         [this] { return ChannelToSelf(); }},
      metrics_.probes_failed);
  probe_->Start();
  return absl::OkStatus();
}

void TransportCore::Stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
  }
  // Before the port, which it would find deaf.
  if (probe_ != nullptr) probe_->Stop();
  // The listening socket first: who redials us when its stream is cut shall be refused.
  if (gate_ != nullptr) gate_->Stop();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  StopCountingRefusedConnections(metrics_.refused);
  std::unique_lock lock(mutex_);
  // Each ends in OnDone, which takes it out of the map and wakes us at the last one.
  for (const auto& [raw, stream] : all_) stream->Abort();
  idle_.wait(lock, [this] { return all_.empty(); });
  lock.unlock();
  relay_.Stop();
  lock.lock();
  retired_.clear();
  // Here and not in our destructor: a callback thread may be the last to let go of us, and a server
  // cannot be destroyed on one of its own threads.
  acceptor_.reset();
  server_.reset();
  exchange_.reset();
  peers_.clear();
  dialing_unknown_.clear();
  events_.clear();
}

peer::Envelope TransportCore::OwnHello() const {
  peer::Envelope envelope;
  peer::Hello& hello = *envelope.mutable_hello();
  hello.set_boot(identity_.boot());
  hello.set_endpoint(endpoint);
  hello.set_wall_ns(HostLoop::Wall().nanoseconds());
  if (!options_.tls) {
    hello.set_public_key(identity_.public_key().data(), identity_.public_key().size());
  }
  return envelope;
}

PeerTransport::PeerTransport(TransportOptions options, const Identity& identity, HostLoop& host,
                             MetricRegistry& metrics, Logger logger)
    : core_(std::make_shared<TransportCore>(std::move(options), identity, host, metrics, logger)) {}

PeerTransport::~PeerTransport() { Stop(); }

void PeerTransport::RegisterService(grpc::Service* service) { core_->services.push_back(service); }

void PeerTransport::SetHandlers(TransportHandlers handlers) {
  core_->handlers = std::make_shared<TransportHandlers>(std::move(handlers));
}

Status PeerTransport::Start() { return core_->Start(); }

void PeerTransport::Stop() { core_->Stop(); }

std::string PeerTransport::endpoint() const { return core_->endpoint; }

bool PeerTransport::answers() const { return core_->answers(); }

bool PeerTransport::IsOldBoot(const PublicKey& key, uint64_t boot) const {
  return core_->IsOldBoot(key, boot);
}

Relay& PeerTransport::relay() { return core_->relay(); }

bool PeerTransport::Send(const Contact& peer, ChannelKind kind, Bytes body) {
  return core_->Send(peer, kind, std::move(body));
}

std::shared_ptr<grpc::Channel> PeerTransport::NewChannel(const std::string& endpoint) const {
  CHECK(!core_->endpoint.empty());  // Start makes the credentials
  return core_->NewChannel(endpoint);
}

}  // namespace crowdsurf::dht
