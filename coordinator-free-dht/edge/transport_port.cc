// TransportCore: the own port. Who may connect, who a call comes from, and whether the port
// answers.
#include <algorithm>
#include <utility>

#include "base/edge/descriptors.h"
#include "base/endpoint.h"
#include "coordinator-free-dht/edge/transport_core.h"

namespace crowdsurf::dht {
namespace {

constexpr int kIdleChannel = 30'000;    // ms; searches come in bursts, when somebody joins or dies
constexpr size_t kConnectionsPart = 4;  // of the descriptors: what was accepted, known or not

// gRPC writes a peer as a URI: ipv4:1.2.3.4:80, ipv6:%5B::1%5D:80. The gate's form of it.
std::string RemoteOf(std::string_view uri) {
  std::string remote(uri.substr(std::min(uri.find(':'), uri.size() - 1) + 1));
  for (const auto& [escaped, plain] : {std::pair("%5B", "["), std::pair("%5D", "]")}) {
    if (const size_t at = remote.find(escaped); at != std::string::npos) {
      remote.replace(at, 3, plain);
    }
  }
  return remote;
}

const char* ReasonOf(ConnectionGate::Refusal why) {
  switch (why) {
    case ConnectionGate::Refusal::kTimedOut:
      return "timed_out";
    case ConnectionGate::Refusal::kCutOff:
      return "cut_off";
    case ConnectionGate::Refusal::kUnknown:
      return "no_call";
    case ConnectionGate::Refusal::kTooMany:
      return "too_many";
    case ConnectionGate::Refusal::kOfAddress:
      return "of_address";
    case ConnectionGate::Refusal::kOfOwner:
      return "of_certificate";
    case ConnectionGate::Refusal::kNoDescriptor:
      return "no_descriptor";
  }
  return "other";
}

}  // namespace

ConnectionGate::Options TransportCore::MakeGateOptions() {
  const size_t descriptors = DescriptorLimit();
  ConnectionGate::Options options;
  options.listen = options_.listen;
  options.port = options_.port;
  options.limits.strangers = PartOf(descriptors, kStrangersPart, options_.strangers);
  options.limits.strangers_of_address = std::max<size_t>(1, options.limits.strangers / 2);
  options.limits.connections =
      PartOf(descriptors, kConnectionsPart, options_.streams_in + options.limits.strangers);
  options.limits.of_owner = options_.connections_of_key;
  options.limits.patience = options_.connect_timeout;
  options.silent = options_.connect_timeout;  // who dials gives up then
  options.unknown = options_.connect_timeout * 2;
  options.unsent = options_.keepalive_timeout;
  options.refused = [this](ConnectionGate::Refusal why) {
    metrics_.refused.For(ReasonOf(why)).Add();
  };
  options.tick = [this] { EndNameless(); };
  options.tick_every = std::min(options_.connect_timeout * 0.125, Seconds(1));
  return options;
}

// gRPC has judged the certificate by the time that it shows us a call.
std::string TransportCore::Know(const grpc::CallbackServerContext& context) {
  std::string owner;
  if (options_.tls) {
    const auto key = KeyShownBy(*context.auth_context());
    if (key.ok()) owner.assign(key->begin(), key->end());
  }
  gate_->Know(RemoteOf(context.peer()), owner);
  return owner;
}

bool TransportCore::OnAccept(const StreamPtr& stream, const grpc::CallbackServerContext& context) {
  stream->key = Know(context);
  stream->accepted_at = host_.Now();
  const std::lock_guard lock(mutex_);
  ++incoming_;
  const size_t same = stream->key.empty() ? 0 : ++incoming_of_[stream->key];
  all_.emplace(stream.get(), stream);
  metrics_.streams.Set(static_cast<double>(all_.size()));
  if (stopped_) return false;
  if (same > options_.streams_of_key) {
    metrics_.StreamRefused("of_certificate").Add();
  } else if (incoming_ > options_.streams_in) {
    metrics_.StreamRefused("too_many").Add();
  } else {
    return true;
  }
  return false;
}

void TransportCore::EndNameless() {
  const std::lock_guard lock(mutex_);
  const Time late = host_.Now() - options_.connect_timeout;
  for (const auto& [raw, stream] : all_) {
    if (stream->outgoing || stream->ready || stream->closed || stream->accepted_at > late) continue;
    metrics_.StreamRefused("no_hello").Add();
    stream->Abort();
  }
}

std::shared_ptr<grpc::Channel> TransportCore::ChannelToSelf() const {
  const std::string& listen = options_.listen;
  const std::string host = listen == "0.0.0.0" ? "127.0.0.1" : listen == "::" ? "::1" : listen;
  return ChannelTo(absl::StrCat(host.find(':') == std::string::npos ? host : "[" + host + "]", ":",
                                gate_->port()),
                   arguments_);
}

// ---- dialing -----------------------------------------------------------------------------------

// Addresses come from peers, and gRPC reads more into a text than a host and a port.
std::shared_ptr<grpc::Channel> TransportCore::ChannelTo(
    const std::string& address, const grpc::ChannelArguments& arguments) const {
  const auto to = ParseEndpoint(address);
  // A channel in any case: its calls fail at once.
  std::string target = "ipv4:0.0.0.0:0";
  if (to && to->kind == Endpoint::Kind::kIpv4)
    target = absl::StrCat("ipv4:", to->host, ":", to->port);
  if (to && to->kind == Endpoint::Kind::kIpv6) {
    target = absl::StrCat("ipv6:[", to->host, "]:", to->port);
  }
  if (to && to->kind == Endpoint::Kind::kName) {
    target = absl::StrCat("dns:///", to->host, ":", to->port);
  }
  return grpc::CreateCustomChannel(target, credentials_.channel, arguments);
}

std::shared_ptr<grpc::Channel> TransportCore::NewChannel(const std::string& to) const {
  return ChannelTo(options_.dial_at ? options_.dial_at(to) : to, arguments_);
}

// What gRPC does with a proxy of the environment, but with ours and for this channel alone: a
// NO_PROXY of the pod must not come between.
std::shared_ptr<grpc::Channel> TransportCore::CarriedChannel(const std::string& to) const {
  grpc::ChannelArguments arguments = arguments_;
  arguments.SetString("grpc.http_connect_server", to);
  arguments.SetString("grpc.http_connect_headers",
                      absl::StrCat("Proxy-Authorization:", relay_.secret()));
  return ChannelTo(relay_.entrance(), arguments);
}

std::shared_ptr<grpc::Channel> TransportCore::ChannelToNeighbour(const std::string& to) const {
  grpc::ChannelArguments arguments = arguments_;
  arguments.SetInt(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, kIdleChannel);
  return ChannelTo(options_.dial_at ? options_.dial_at(to) : to, arguments);
}

}  // namespace crowdsurf::dht
