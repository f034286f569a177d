// ConnectionGate: takes the connections of a port for a server that cannot bound them itself.
//
// gRPC 1.51 neither bounds connections nor accepts again when descriptors ran out. So the gate has
// the listening socket. It hands a connection over with its first bytes, and still watches it: who
// is not known in time is cut. ConnectionAdmission chooses who makes room. When no descriptor is
// left, a stranger goes and the gate tries again after 50 ms. The gate tells by the inode behind a
// descriptor whether a connection that it gave away is still there: no duplicate is kept. Cost: one
// fstat a connection each `tick_every`. One thread of its own, in epoll_wait. Public methods: any
// thread, but Open, Serve and Stop from the owner's.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/edge/connection_admission.h"
#include "base/status.h"
#include "base/time.h"

namespace crowdsurf {

class ConnectionGate {
 public:
  // Why a connection was refused or cut.
  enum class Refusal : uint8_t {
    kTimedOut,      // said nothing in time
    kCutOff,        // ended by the other side before it said anything
    kUnknown,       // said something, and was not known in time
    kTooMany,       // made room for another, or found none
    kOfAddress,     // the same, of one address
    kOfOwner,       // the same, of one owner
    kNoDescriptor,  // none was left
  };
  struct Options {
    std::string listen;  // an address in numbers; "::" takes IPv4, too
    int port = 0;        // 0: any free one
    ConnectionAdmission::Limits limits = {};
    Duration silent = Seconds(5);    // to the first byte
    Duration unknown = Seconds(10);  // from the accept until it is known
    Duration unsent = Seconds(2);    // for bytes to be acknowledged; then the kernel cuts
    std::function<void(Refusal)> refused = {};  // on the gate's thread
    std::function<void()> tick = {};            // the same, each `tick_every`
    Duration tick_every = Seconds(1);
  };
  // Takes a connected socket that does not block, whose owner it is from now on. On the gate's
  // thread.
  using HandOver = std::function<void(int listener, int connected)>;

  explicit ConnectionGate(Options options);
  ~ConnectionGate();  // stops
  ConnectionGate(const ConnectionGate&) = delete;
  ConnectionGate& operator=(const ConnectionGate&) = delete;

  // Binds and listens. Error: the address and why it cannot be had.
  Status Open();
  int port() const { return port_; }  // after Open
  void Serve(HandOver hand_over);     // after Open; once
  // Closes the port and what was not handed over, and joins the thread. Idempotent.
  void Stop();

  // The connection from that address and port has proved to be of `owner` (empty: of somebody).
  void Know(const std::string& remote, const std::string& owner);
  // host:port of a socket's other end as Know takes it: IPv4 also of an IPv6 socket, IPv6 in
  // brackets. Empty: of another family.
  static std::string RemoteOf(const sockaddr_storage& address);
  // Who shares a bound with that `remote`: an IPv4 address, or the /64 network of an IPv6 one.
  static std::string SourceOf(const std::string& remote);

 private:
  using Id = ConnectionAdmission::Id;
  struct Connection {
    int fd = -1;
    std::string remote;
    bool given = false;  // handed over: the descriptor is somebody else's
    uint64_t inode = 0;  // of the socket, once it was given
  };
  using Connections = std::map<Id, Connection>;
  struct Known {
    std::string remote, owner;
  };

  void Run();
  void TakeKnown();
  void Accept();
  void Take(int fd, const sockaddr_storage& from);
  void OnReadable(Id id);
  void Give(Id id);
  void CutOverdue(Time now);
  ConnectionAdmission::Room MakeRoom(const std::string& source);
  void LookForEnds(Time now);
  void Cut(Id id, Refusal why);
  void End(Id id);
  void Forget(Connections::iterator it);
  void Watch(int operation, int fd, uint32_t events, uint64_t id) const;
  void ListenAgain(bool on);
  void Count(Refusal why) const {
    if (options_.refused) options_.refused(why);
  }

  const Options options_;
  HandOver hand_over_;
  int listener_ = -1, epoll_ = -1, wake_ = -1;
  int port_ = 0;
  std::thread thread_;

  std::mutex mutex_;
  std::vector<Known> known_;
  bool stopped_ = false;

  // ---- the gate's thread ----
  ConnectionAdmission admission_;
  Connections connections_;
  std::map<std::string, Id> remotes_;
  Id next_id_;
  Time looked_;                           // for ends
  Time listen_again_ = Time::Infinite();  // after want of descriptors
};

}  // namespace crowdsurf
