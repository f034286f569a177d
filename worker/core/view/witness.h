// Witness: the acceptor of Paxos registers, and the bounded table of the registers a peer
// witnesses.
//
// Registers: a round instance (its decided value) and "successor of view e" (the next view). A
// witness promises ballots b > promised, accepts b >= promised, and remembers what it accepted
// (docs/round.md). A peer that is member and witness of a round answers both roles from one
// ballot variable: Round holds the record while it is open (Lend) and hands it back (Retire).
// Records are kept until their view is two epochs old, at most kMaxRecords and kMaxBytes; beyond
// that rounds of the oldest averagings go first, each by itself: others of their age stay open.
// From then on "forgotten" is answered: a pruned promise is never made anew, so no agreement
// depends on what is kept, decided or not. Counted. Single sequence.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/id.h"
#include "worker/core/view/register.h"
#include "worker/core/view/view_hash.h"

namespace crowdsurf::worker {

struct RegisterId {
  enum class Kind : uint8_t { kRound, kSuccessor } kind = Kind::kRound;
  std::array<uint8_t, 32> name{};
  auto operator<=>(const RegisterId&) const = default;

  static RegisterId Round(const InstanceId& instance);
  static RegisterId SuccessorOf(const ViewHash& view);
};

struct WitnessAnswer {
  enum class Kind : uint8_t {
    kYes,        // promised or accepted
    kRefused,    // record.promised is higher
    kForgotten,  // pruned: the asker keeps its own values
    kFull,       // no room: say nothing, as if dead
    kLent        // an open Round answers for this register: give the frame to it
  } kind = Kind::kYes;
  WitnessRecord record;  // after the call
};

class WitnessTable {
 public:
  static constexpr size_t kMaxRecords = 4096;
  static constexpr size_t kMaxBytes = 64U << 20;  // of values; one is 8 B a chunk and more
  static constexpr size_t kMaxForgotten = 4096;   // ids of pruned registers, some 100 B each
  explicit WitnessTable(size_t max_records = kMaxRecords, size_t max_bytes = kMaxBytes)
      : max_(max_records), max_bytes_(max_bytes) {}

  WitnessAnswer OnOpen(const RegisterId& id, const RegisterAge& age, Ballot ballot);
  WitnessAnswer OnAccept(const RegisterId& id, const RegisterAge& age, Ballot ballot,
                         const Bytes& value);
  // For the Round that opens now: what was promised so far (RoundSpec::promised). Until Retire the
  // table answers kLent. nullopt: the register is forgotten, so the instance must not be opened.
  // Pre: not lent.
  std::optional<WitnessRecord> Lend(const RegisterId& id, const RegisterAge& age);
  void Retire(const RegisterId& id, WitnessRecord record);  // Round::Promised()

  // The view has this epoch now: registers of views two epochs older are dropped.
  void OnEpoch(uint64_t epoch);

  // It was asked for a ballot on this register, and keeps what it answered.
  bool Holds(const RegisterId& id) const { return records_.contains(id); }
  size_t size() const { return records_.size(); }
  size_t bytes() const { return bytes_; }      // of values
  uint64_t pruned() const { return pruned_; }  // records that had to make room
  uint64_t full() const { return full_; }      // asked while no older record could make room

 private:
  struct Entry {
    WitnessRecord record;
    RegisterAge age;
    bool lent = false;
  };
  using Records = std::map<RegisterId, Entry>;
  Entry* Find(const RegisterId& id, const RegisterAge& age, WitnessAnswer::Kind& why_not);
  bool Pruned(const RegisterId& id, const RegisterAge& age) const;
  bool MakeRoom(const RegisterAge& asked, size_t bytes);
  void Put(Entry& entry, WitnessRecord record);
  void Drop(Records::iterator at);
  void Remember(const RegisterId& id, const RegisterAge& age);

  size_t max_;
  size_t max_bytes_;
  Records records_;
  size_t bytes_ = 0;
  std::map<RegisterId, RegisterAge> forgotten_;  // went to make room; not below a floor
  // By epoch, of the two that are kept: unknown rounds of averagings below it are forgotten.
  std::map<uint64_t, AveragingId> floors_;
  uint64_t min_epoch_ = 0;
  uint64_t pruned_ = 0;
  uint64_t full_ = 0;
};

}  // namespace crowdsurf::worker
