// Messages about seats (messages.h): who asks for one, has one or gives it back, and in which view.
//
// Values; any thread. Bounds: messages_codec.cc. Source: docs/views.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "worker/core/port/contact.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

constexpr size_t kMaxTableMarks = 4096;  // 16 KiB of a message; a model has some hundred tensors

namespace message {

// Seats and vacancies of a view; the receiver merges them.
struct SeatingNews {
  ViewHash view;
  std::vector<Seat> seats;
  std::vector<Vacancy> vacancies;
  std::vector<Contact> contacts;  // of the seated
  Digest all;                     // Seating::MinorHash of all that the sender knows, these included
  bool operator==(const SeatingNews&) const = default;
};
// A seat, please. From a newcomer, or from a member of a lineage that loses against the receiver's.
struct JoinRequest {
  Member member;  // cell is not meant
  Contact contact;
  AveragingId next = {};   // the least averaging it can open
  AveragingId holds = {};  // committed average whose parameters the trainer has
  bool trained = false;    // it has parameters worth keeping whatever `holds` says
  Digest schema;
  std::optional<LineageRank> lineage;  // of the view it would leave
  bool operator==(const JoinRequest&) const = default;
};
struct JoinAnswer {
  enum class Kind : uint8_t {
    kFetchFirst,  // fetch `committed` from `contacts`, then ask again
    kAskSteward,  // `contacts[0]` is the steward
    kWait,        // noted: a seat or a view follows
    kNoView,      // I have none yet myself; noted
    kRefused      // other schema, other job's size: `reason`
  } kind = Kind::kWait;
  Committed committed;
  std::vector<Contact> contacts;
  std::string reason;
  std::vector<uint32_t> marks = {};  // kRefused for another table: TrainerRegistered::marks here
  bool operator==(const JoinAnswer&) const = default;
};
// A decided view with its seats: to its members, and to a peer that speaks of an older one.
struct ViewNews {
  Bytes view;  // Encode(View)
  std::vector<Seat> seats;
  std::vector<Vacancy> vacancies;
  std::vector<Contact> contacts;
  Committed committed;
  double job_seconds = 0;  // how long the job has trained, when this was sent (job_clock.h)
  bool operator==(const ViewNews&) const = default;
};
struct ViewAsk {  // tell me your view: mine is older
  bool operator==(const ViewAsk&) const = default;
};
struct Leaving {  // the sender gives its cell back
  ViewHash view;
  bool operator==(const Leaving&) const = default;
};

}  // namespace message

}  // namespace crowdsurf::worker
