// Link layout: the exact bytes of the file `tensors` that an agent and its trainer both map.
//
// Purpose: one definition for the agent, the C++ client, the tests and docs/trainer-link.md, from
// which a client in any language can be written. Pure: offsets, the tensor table's codec, the
// words. Little-endian. The file is: control block (4,096 B), tensor table, index-set region,
// outbox, inbox 0, inbox 1; every region starts on a 4,096-byte boundary. Each word that both sides
// touch has a cache line of its own and one writer; `A` words are the agent's, `T` words the
// trainer's. Memory order: what a word announces is written before it, the word is stored with
// release and loaded with acquire. Words that announce nothing are relaxed. Bounds: below. Source:
// docs/trainer-link.md.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/status.h"
#include "worker/core/subnet/unit_schema.h"

namespace crowdsurf::worker {

inline constexpr uint64_t kLinkMagic = 0x314b4e494c465343;  // the bytes "CSFLINK1"
inline constexpr uint32_t kLinkVersion = 1;
inline constexpr uint64_t kLinkControlBytes = 4096;
inline constexpr uint64_t kLinkRegionAlign = 4096;        // a page: regions can be mapped alone
inline constexpr size_t kMaxLinkTensors = 65'536;         // bounds the table a trainer can ask for
inline constexpr size_t kMaxLinkName = 256;               // bytes of a tensor's or metric's name
inline constexpr size_t kMaxLinkDimensions = 8;           // of one tensor
inline constexpr uint64_t kMaxLinkElements = 1ULL << 38;  // 1 TiB of float32
inline constexpr size_t kLinkMetrics = 16;                // named slots beside the loss

// Half-precision links are reserved: version 1 refuses them by name.
enum class LinkDtype : uint8_t { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2 };
enum class LinkRole : uint8_t {
  kParameter = 0,
  kOptimizerState = 1,
  kBuffer = 2,
  kGradient = 3,
  kFrozen = 4,  // a hash of parameters that no worker trains, as the row's name; never averaged
};
enum class LinkOverlap : uint32_t { kDelayed = 0, kBlocking = 1 };

const char* LinkDtypeName(LinkDtype dtype);  // "float32"
const char* LinkRoleName(LinkRole role);     // "Parameter"
std::optional<LinkDtype> LinkDtypeNamed(std::string_view name);
std::optional<LinkRole> LinkRoleNamed(std::string_view name);

// A tensor as the trainer declares it, and where it lies in each of the three regions.
struct LinkTensor {
  static constexpr uint64_t kNotShared = ~0ULL;

  std::string name;  // unique, 1..kMaxLinkName bytes of printable ASCII
  LinkDtype dtype = LinkDtype::kFloat32;
  LinkRole role = LinkRole::kParameter;
  std::vector<uint64_t> shape;  // empty is a scalar; every dimension >= 1
  uint64_t rows = 0,
           cols = 0;  // matrix view (PowerGossip), rows * cols = elements; 0, 0: defaulted
  std::vector<UnitAxis> units;  // axes that run over the units of a group; the others are shared
  // Bytes from the start of a region; tensors lie packed in table order. kNotShared: its role is
  // not averaged in this job, so it has no place in the file.
  uint64_t offset = kNotShared;

  uint64_t elements() const;
  bool shared() const { return offset != kNotShared; }
  bool operator==(const LinkTensor&) const = default;
};

// Everything of the file that does not change after registration.
struct LinkGeometry {
  std::vector<LinkTensor> tensors;
  Digest schema;          // Sha256 over the encoded table: equal at all workers of a job
  uint64_t elements = 0;  // float32 values in each region: the length of the averaged vector
  uint64_t table_offset = 0, table_bytes = 0;
  uint64_t index_offset = 0,
           index_bytes = 0;  // active index sets (IST); 0 bytes without unit groups
  uint64_t outbox_offset = 0;
  std::array<uint64_t, 2> inbox_offset{};
  uint64_t file_bytes = 0;
};

// Checks `declared` against the bounds above, fills in matrix views and offsets of the tensors
// whose role is in `shared_roles`, and lays the file out. InvalidArgument lists every violation at
// once, each with the tensor's name. O(tensors log tensors).
StatusOr<LinkGeometry> LayOutLink(std::vector<LinkTensor> declared,
                                  const std::vector<LinkRole>& shared_roles);

// The unit groups of the averaged vector, for strategies that cut the model. Pre: LayOutLink made
// it.
UnitSchema UnitsOf(const LinkGeometry& geometry);

// The table as stored at table_offset: per tensor name (u32 length, bytes), dtype u8, role u8,
// dimensions u8, each u64, rows u64, cols u64, unit axes u8, of each axis, group, unit size and
// blocks u32, offset u64; before them a u32 count.
Bytes EncodeLinkTable(const std::vector<LinkTensor>& tensors);
std::optional<std::vector<LinkTensor>> DecodeLinkTable(ByteView bytes);

// The first 256 bytes of the file. Written by the agent before it answers `register`.
Bytes EncodeLinkIdentity(const LinkGeometry& geometry);
// What an existing file says of itself: DataLoss with words when it is not a link of this version,
// is shorter than it says, or its table does not match its hash. `file` is the start of the file,
// at least up to the end of the table. Accepts only layouts that LayOutLink makes.
StatusOr<LinkGeometry> ReadLinkIdentity(ByteView file, uint64_t file_bytes);

// One word on its own cache line.
template <class T>
struct alignas(64) LinkWord {
  std::atomic<T> value{};
  static_assert(std::atomic<T>::is_always_lock_free, "words must be address-free");
};

// The control block at offset 0. Offsets are asserted below and listed in docs/trainer-link.md.
struct LinkControl {
  uint8_t identity[256];

  // --- A: written by the agent -------------------------------------------------------------------
  LinkWord<uint64_t> agent_epoch;  // +1 whenever an agent opens the file; changed: register again
  LinkWord<uint64_t> agent_beat;   // +1 at least every 500 ms while the agent's link is alive
  LinkWord<uint32_t> agent_bell;   // futex: +1 and wake after any A word below changed
  LinkWord<uint32_t> hold;         // 1: no step yet, state is being fetched
  LinkWord<uint32_t> stop;         // 1: target met: finish, acknowledge, exit 0
  struct alignas(64) {
    std::atomic<uint32_t> flag;        // release; 1: this worker is about to be taken
    std::atomic<int64_t> deadline_ns;  // Unix time; written before the flag
  } notice;
  // Snapshots are numbered by tickets, counted up by the agent for as long as the file lives;
  // averaging numbers are the job's and may repeat or fall when a branch joins another.
  LinkWord<uint64_t> publish_wanted;  // ticket asked for; 0: none yet
  struct alignas(64) {
    std::atomic<uint64_t> ticket;     // release; ticket * 2 + inbox
    std::atomic<uint64_t> averaging;  // the result's averaging number; written before the ticket
  } result_ready;
  LinkWord<uint64_t> released;  // release; the agent reads the outbox of this ticket no more
  struct alignas(64) {
    std::atomic<uint64_t> request;     // release; sequence * 2 + inbox: replace the parameters
    std::atomic<uint64_t> averaging;   // the number of the average in that inbox
    std::atomic<uint32_t> has_opaque;  // 1: GET /v1/opaque has the matching trainer state
  } adopt;
  struct alignas(64) {
    std::atomic<uint32_t> overlap;          // LinkOverlap
    std::atomic<uint32_t> inbox_is_change;  // 1: add the inbox; 0: add inbox - outbox
    std::atomic<uint32_t>
        cadence_steps;  // n > 0: publish every n steps unasked (per-step strategies)
  } mode;
  LinkWord<double> lr_scale;  // multiply the learning rate by this (RelaySum), 1.0
  struct alignas(64) {
    std::atomic<double> samples;      // job-wide sample count
    std::atomic<uint64_t> averaging;  // last committed averaging
    std::atomic<uint64_t> epoch;      // of the view
    std::atomic<uint64_t> members;    // of the view
  } job;
  LinkWord<uint64_t> opaque_wanted;  // sequence: send the opaque state with PUT /v1/opaque
  LinkWord<uint64_t> index_version;  // release; the index-set region holds this version
  struct alignas(64) {
    std::atomic<uint64_t> steps;    // ring trainer_bell when steps reach this; 0: never
    std::atomic<uint64_t> samples;  // the same for samples
  } wake_at;
  LinkWord<uint64_t> leases_version;  // release; +1 when GET /v1/leases has changed
  // Gradients are averaged: gather so many samples of a step, then wait. 0: parameters are
  // averaged.
  LinkWord<uint64_t> share;
  uint8_t reserved_agent[2048 - 256 - 18 * 64];

  // --- T: written by the trainer -----------------------------------------------------------------
  LinkWord<uint32_t> trainer_bell;  // futex: +1 and wake after published, applied, adopted, stop
  LinkWord<uint64_t> steps;         // since registration
  LinkWord<uint64_t> samples;       // since registration
  struct alignas(64) {
    std::atomic<uint64_t> ticket;    // release; the outbox holds the snapshot for this ticket
    std::atomic<uint64_t> steps;     // at the snapshot; written before the ticket
    std::atomic<uint64_t> samples;   // at the snapshot
    std::atomic<uint64_t> stream;    // of the leases, at the snapshot
    std::atomic<uint64_t> position;  // in that stream
    std::atomic<uint64_t> gathered;  // samples of the gradient, at the snapshot
  } published;
  LinkWord<uint64_t> applied;  // release; ticket whose result is in the parameters
  LinkWord<uint32_t> stop_acknowledged;
  LinkWord<uint64_t> adopted;   // release; sequence of the adoption done
  LinkWord<uint64_t> stall_ns;  // time the trainer was held by averaging: copies and waits
  struct alignas(64) {
    std::atomic<uint64_t> sequence;  // +1 when loss or a metric changed
    std::atomic<double> loss;        // NaN: not known yet
  } progress;
  LinkWord<uint64_t> opaque_given;  // sequence answered
  LinkWord<uint64_t> index_taken;   // release; version of the index sets in use
  std::array<std::atomic<double>, kLinkMetrics> metrics;  // in the order named at registration
  struct alignas(64) {
    std::atomic<uint64_t> stream;    // release, 0 while the others change; of the leases, 0: none
    std::atomic<uint64_t> position;  // samples of the stream that are trained
    std::atomic<uint64_t> waits;     // release; 1: nothing is trained until there are other leases
    std::atomic<uint64_t> seen;      // the leases_version that it goes by; before `waits`
  } leases;
  struct alignas(64) {
    std::atomic<uint64_t> gathered;  // samples in the gradient of the next step, up to now
    std::atomic<uint64_t> shares;    // release; +1 when the share is there
    std::atomic<uint64_t> step;      // averaging that the parameters are of; 0: none
  } gradient;
  // Version 2. The snapshot of `ticket` is being copied: what `published` says beside the ticket
  // is written before this one. A client of version 1 leaves it at 0.
  struct alignas(64) {
    std::atomic<uint64_t> ticket;    // release
    std::atomic<uint64_t> elements;  // release; so many values, from the first on, are there
  } filling;
  // A hash of the first batches that the trainer drew: workers with equal ones train on the same
  // data in the same order. 0: not known, as of a client that leaves it alone.
  LinkWord<uint64_t> order;
  uint8_t reserved_trainer[2048 - 15 * 64 - 8 * kLinkMetrics];
};

static_assert(sizeof(LinkControl) == kLinkControlBytes);
static_assert(offsetof(LinkControl, agent_epoch) == 0x100);
static_assert(offsetof(LinkControl, hold) == 0x1c0);
static_assert(offsetof(LinkControl, notice) == 0x240);
static_assert(offsetof(LinkControl, publish_wanted) == 0x280);
static_assert(offsetof(LinkControl, result_ready) == 0x2c0);
static_assert(offsetof(LinkControl, released) == 0x300);
static_assert(offsetof(LinkControl, adopt) == 0x340);
static_assert(offsetof(LinkControl, mode) == 0x380);
static_assert(offsetof(LinkControl, lr_scale) == 0x3c0);
static_assert(offsetof(LinkControl, job) == 0x400);
static_assert(offsetof(LinkControl, opaque_wanted) == 0x440);
static_assert(offsetof(LinkControl, index_version) == 0x480);
static_assert(offsetof(LinkControl, wake_at) == 0x4c0);
static_assert(offsetof(LinkControl, trainer_bell) == 0x800);
static_assert(offsetof(LinkControl, published) == 0x8c0);
static_assert(offsetof(LinkControl, applied) == 0x900);
static_assert(offsetof(LinkControl, adopted) == 0x980);
static_assert(offsetof(LinkControl, progress) == 0xa00);
static_assert(offsetof(LinkControl, index_taken) == 0xa80);
static_assert(offsetof(LinkControl, metrics) == 0xac0);
static_assert(offsetof(LinkControl, leases_version) == 0x500);
static_assert(offsetof(LinkControl, leases) == 0xb40);
static_assert(offsetof(LinkControl, share) == 0x540);
static_assert(offsetof(LinkControl, gradient) == 0xb80);
static_assert(offsetof(LinkControl, filling) == 0xbc0);
static_assert(offsetof(LinkControl, order) == 0xc00);

}  // namespace crowdsurf::worker
