// TransportCore: the bookkeeping behind PeerTransport; private to edge/transport*.cc.
//
// One mutex guards everything here and in the streams. gRPC's callback threads call the On...
// methods, any thread calls Send; nothing blocks while the mutex is held (gRPC's Start... calls
// only queue work). A Stream is shared by these maps and by gRPC, which lets go in OnDone.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/down_evidence.h"
#include "base/edge/connection_gate.h"
#include "coordinator-free-dht/core/routing/latest_boots.h"
#include "coordinator-free-dht/core/wire/frame_joiner.h"
#include "coordinator-free-dht/edge/credentials.h"
#include "coordinator-free-dht/edge/grpc_log.h"
#include "coordinator-free-dht/edge/peer.grpc.pb.h"
#include "coordinator-free-dht/edge/port_probe.h"
#include "coordinator-free-dht/edge/relay.h"
#include "coordinator-free-dht/edge/transport.h"

namespace crowdsurf::dht {

// One stream, dialed or accepted. All fields are guarded by TransportCore::mutex_.
class Stream {
 public:
  virtual ~Stream() = default;
  // Start to write `current`; one at a time.
  virtual void StartWriting() = 0;
  // No more writes from us; the other side ends the stream when it has read all.
  virtual void StartClosing() = 0;
  // Ends now; OnDone follows.
  virtual void Abort() = 0;

  bool outgoing = false;
  StreamPath path = StreamPath::kDirect;  // dialed so by us, or as its hello says
  Contact peer;                           // dialed: whom we want; after its hello: who it is
  std::string dialed;                     // the address; accepted: empty
  bool ready = false;                     // its hello was good
  bool closed = false;
  bool writing = false;
  bool close_when_empty = false;  // idle, or the other side told us to use its own stream
  int probe = 0;                  // number of this redial after the last stream was cut; 0: none
  Time dialed_at;
  Time ready_since;
  std::string key;   // accepted: the key that its certificate shows; empty without TLS
  Time accepted_at;  // dialed: unset
  std::deque<peer::Envelope> queue;
  size_t queue_bytes = 0;
  uint64_t last_used = 0;
  peer::Envelope current;  // being written
  FrameJoiner joiner;      // what was read of a message in pieces
};

using StreamPtr = std::shared_ptr<Stream>;

enum class WriteResult : uint8_t { kWritten, kFailed };
// How a stream ended: one that is cut or refused may have lost messages.
enum class StreamEnd : uint8_t { kOrderly, kCut };

struct TransportMetrics {
  explicit TransportMetrics(MetricRegistry& registry);
  Counter& sent;
  Counter& received;
  Counter& sent_bytes;
  Counter& received_bytes;
  Counter& dropped_queue;  // waiting for a stream, or stream full
  Counter& dropped_size;
  Counter& dropped_lost;     // with their stream
  Counter& dropped_mailbox;  // arrived, but the host was too busy
  Counter& invalid;          // frames that are no frames
  Counter& impostors;        // another peer than expected answered
  Counter& boots_old;        // streams of a key that has spoken under a higher boot
  Counter& boots_replaced;   // ids that died so
  Counter& boots_forgotten;  // keys that made room for others
  Counter& dials;
  Counter& dials_refused;
  Counter& dials_failed;
  // Accepted and ended before their hello, by reason.
  Counter& StreamRefused(const char* reason);
  // For reasons that are rare: their series is made by the first.
  Counter& Dropped(const char* reason);

  MetricRegistry& registry;
  Counter& certificates_refused;
  Counter& probes_failed;
  RefusedConnections refused;
  Gauge& streams;
};

class TransportCore : public std::enable_shared_from_this<TransportCore> {
 public:
  TransportCore(TransportOptions options, const Identity& identity, HostLoop& host,
                MetricRegistry& metrics, Logger logger);

  // The public class forwards to these; see there.
  Status Start();
  void Stop();
  bool Send(const Contact& peer, ChannelKind kind, Bytes body);
  std::shared_ptr<grpc::Channel> NewChannel(const std::string& endpoint) const;
  Relay& relay() { return relay_; }
  bool answers() const { return probe_ == nullptr || probe_->answers(); }
  bool IsOldBoot(const PublicKey& key, uint64_t boot);
  // For the relay: finds out whether that peer is there.
  void Prove(const Contact& end);

  // From the streams' reactors. OnRead: true when reading goes on; `auth`: of a dialed stream.
  bool OnRead(const StreamPtr& stream, const peer::Envelope& in, const grpc::AuthContext* auth);
  void OnWritten(const StreamPtr& stream, WriteResult result);
  // gRPC is finished with the stream.
  void OnDone(StreamPtr stream, StreamEnd end, const std::string& reason);
  // An accepted call: false when there are too many or we are stopping.
  bool OnAccept(const StreamPtr& stream, const grpc::CallbackServerContext& context);

  std::mutex& mutex() { return mutex_; }

  std::vector<grpc::Service*> services;
  std::shared_ptr<const TransportHandlers> handlers;
  std::string endpoint;

 private:
  struct Peer {
    std::vector<StreamPtr> ready;
    StreamPtr dialing;
  };

  RelayOptions MakeRelayOptions();
  ConnectionGate::Options MakeGateOptions();
  // A call has come, so its connection showed a good certificate: the key of it, empty without TLS.
  std::string Know(const grpc::CallbackServerContext& context);
  void EndNameless();  // streams whose hello is late
  std::shared_ptr<grpc::Channel> ChannelToSelf() const;
  std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address,
                                           const grpc::ChannelArguments& arguments) const;
  // By the path that the relay knows of; DialBy: by this one.
  StreamPtr Dial(const Contact& to);
  StreamPtr DialBy(const Contact& to, StreamPath path);
  std::shared_ptr<grpc::Channel> CarriedChannel(const std::string& endpoint) const;
  std::shared_ptr<grpc::Channel> ChannelToNeighbour(const std::string& endpoint) const;
  // A dial failed for good, unless the relay is to be tried: then true, and `stream`'s queue waits
  // for that. `evidence` becomes what it says about the peer's life.
  bool DialCarried(const StreamPtr& stream, DownEvidence& evidence);
  StreamPtr StreamTo(const Contact& to);
  bool DropForDead(const Contact& to, ChannelKind kind);
  bool Enqueue(const StreamPtr& stream, peer::Envelope envelope);
  bool HasRoom(const Stream& stream, size_t messages, size_t bytes);
  void WarnOfTooLong(const Contact& to, size_t bytes);
  void Pump(const StreamPtr& stream);
  void EvictIdle(size_t most);
  void MoveQueue(const StreamPtr& from, const StreamPtr& to);
  bool OnHello(const StreamPtr& stream, const peer::Hello& hello, const grpc::AuthContext* auth);
  bool TakeBoot(const PublicKey& key, uint64_t boot);
  void Replace(const PeerId& old);
  void TellClock(const Stream& stream, const PublicKey& key, int64_t wall_ns);
  void Settle(const StreamPtr& stream, const PeerId& id, const std::string& at);
  void OnFrame(const StreamPtr& stream, const peer::Frame& frame);
  void OnDialFailed(const StreamPtr& stream, const std::string& reason);
  bool HasNeighbour(const PeerId& id) const;
  void OnStreamLost(const StreamPtr& stream, StreamEnd end);
  void DropQueue(const StreamPtr& stream);
  peer::Envelope OwnHello() const;
  // Posts an event that must not be lost; kept and retried while the mailbox is full.
  void PostEvent(HostLoop::Closure event);
  bool PostEvents();
  void PostDown(const Contact& peer, DownEvidence evidence);

  const TransportOptions options_;
  const Identity& identity_;
  HostLoop& host_;
  Logger logger_;
  TransportMetrics metrics_;
  PeerCredentials credentials_;
  grpc::ChannelArguments arguments_;
  std::unique_ptr<ConnectionGate> gate_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<PortProbe> probe_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::Service> exchange_;
  Relay relay_;

  std::mutex mutex_;
  std::condition_variable idle_;
  bool stopped_ = false;
  uint64_t uses_ = 0;
  JoinBudget joining_;
  Time warned_of_length_;  // unset: never
  size_t incoming_ = 0;
  std::map<std::string, size_t> incoming_of_;  // by key
  LatestBoots boots_;
  std::map<PeerId, Peer> peers_;
  std::map<std::string, StreamPtr> dialing_unknown_;  // by endpoint
  std::map<Stream*, StreamPtr> all_;
  std::deque<HostLoop::Closure> events_;
  // Ended streams, until a thread that is not gRPC's destroys them: the last channel of a process
  // must not go on one of gRPC's callback threads (1.51 joins those threads then, itself included).
  std::vector<StreamPtr> retired_;
};

// The reactors (transport_streams.cc).
StreamPtr DialStream(std::shared_ptr<TransportCore> core, std::shared_ptr<grpc::Channel> channel,
                     const Contact& to, const peer::Envelope& hello);
std::unique_ptr<grpc::Service> MakeExchangeService(std::weak_ptr<TransportCore> core);

}  // namespace crowdsurf::dht
