// Codec of messages.h: a kind byte (the variant's index), then the fields in order.
#include <utility>

#include "worker/core/port/messages.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kSeatBytes = 40;  // least size of an encoded seat; bounds allocation
constexpr size_t kVacancyBytes = 36;
constexpr size_t kContactBytes = 44;
constexpr size_t kMaxReason = 1024;

// One function a field type, for writing and reading alike: a message lists its fields once.
class Writer {
 public:
  explicit Writer(ByteWriter& out) : out_(out) {}
  void operator()(const Bytes& v) { out_.Blob(v); }
  void operator()(const std::string& v) { out_.String(v); }
  void operator()(uint64_t v) { out_.U64(v); }
  void operator()(AveragingId v) { out_.U64(v.value()); }
  void Any(uint64_t v) { out_.U64(v); }
  void operator()(uint32_t v) { out_.U32(v); }
  void operator()(uint16_t v) { out_.U16(v); }
  void operator()(uint8_t v) { out_.U8(v); }
  void operator()(bool v) { out_.Bool(v); }
  void operator()(double v) { out_.F64(v); }
  template <class Tag, size_t kSize>
  void operator()(const FixedId<Tag, kSize>& v) {
    out_.Raw(v.view());
  }
  void operator()(const Committed& v) { Encode(v, out_); }
  void operator()(const Contact& v) { Encode(v, out_); }
  void operator()(const LedgerMark& v) { Encode(v, out_); }
  void operator()(const Member& v) {
    out_.Raw(v.id.view());
    out_.I64(v.joined_unix_ms);
    out_.Bool(v.on_demand);
    out_.U32(v.bandwidth_class);
  }
  void operator()(const std::optional<LineageRank>& v) {
    out_.Bool(v.has_value());
    if (v) out_.U64(v->members);
    if (v) out_.Raw(v->origin.view());
  }
  void operator()(message::JoinAnswer::Kind v) { out_.U8(static_cast<uint8_t>(v)); }
  void operator()(message::ViewVote::Kind v) { out_.U8(static_cast<uint8_t>(v)); }
  void operator()(PairWord::Kind v) { out_.U8(static_cast<uint8_t>(v)); }
  void operator()(EdgeWord::Kind v) { out_.U8(static_cast<uint8_t>(v)); }
  void operator()(const std::vector<uint32_t>& marks) {
    out_.U32(static_cast<uint32_t>(marks.size()));
    for (const uint32_t mark : marks) out_.U32(mark);
  }
  template <class T>
  void operator()(const std::vector<T>& items) {
    out_.U32(static_cast<uint32_t>(items.size()));
    for (const T& item : items) Encode(item, out_);
  }

 private:
  ByteWriter& out_;
};

class Reader {
 public:
  explicit Reader(ByteReader& in) : in_(in) {}
  void operator()(Bytes& v) {
    const ByteView blob = in_.Blob(kMaxFrameBytes);
    v.assign(blob.begin(), blob.end());
  }
  void operator()(std::string& v) { v = in_.String(kMaxReason); }
  void operator()(AveragingId& v) {
    uint64_t number = 0;
    (*this)(number);
    v = AveragingId(number);
  }
  void operator()(uint64_t& v) {  // of an averaging or an epoch
    v = in_.U64();
    if (v > kMaxNumber) in_.Fail();
  }
  void Any(uint64_t& v) { v = in_.U64(); }  // its users bound it, where they calculate with it
  void operator()(uint32_t& v) { v = in_.U32(); }
  void operator()(uint16_t& v) { v = in_.U16(); }
  void operator()(uint8_t& v) { v = in_.U8(); }
  void operator()(bool& v) { v = in_.Bool(); }
  void operator()(double& v) {  // seconds of a job: nothing else has a use for it
    v = in_.F64();
    if (!(v >= 0 && v <= kMaxSeconds)) in_.Fail();
  }
  template <class Tag, size_t kSize>
  void operator()(FixedId<Tag, kSize>& v) {
    v = ReadId<FixedId<Tag, kSize>>(in_);
  }
  void operator()(Committed& v) { v = DecodeCommitted(in_); }
  void operator()(Contact& v) { v = DecodeContact(in_); }
  void operator()(LedgerMark& v) { v = DecodeLedgerMark(in_); }
  void operator()(Member& v) {
    v.id = ReadId<PeerId>(in_);
    v.joined_unix_ms = in_.I64();
    v.on_demand = in_.Bool();
    v.bandwidth_class = in_.U32();
    if (v.joined_unix_ms < -kMaxUnixMs || v.joined_unix_ms > kMaxUnixMs ||
        v.bandwidth_class > kMaxBandwidthClass)
      in_.Fail();
  }
  void operator()(std::optional<LineageRank>& v) {
    if (!in_.Bool()) return;
    v.emplace();
    v->members = in_.U64();
    if (v->members > kMaxMembers) in_.Fail();
    v->origin = ReadId<ViewHash>(in_);
  }
  void operator()(message::JoinAnswer::Kind& v) {
    const uint8_t kind = in_.U8();
    if (kind > static_cast<uint8_t>(message::JoinAnswer::Kind::kRefused)) return in_.Fail();
    v = static_cast<message::JoinAnswer::Kind>(kind);
  }
  void operator()(message::ViewVote::Kind& v) {
    const uint8_t kind = in_.U8();
    if (kind > static_cast<uint8_t>(message::ViewVote::Kind::kDecided)) return in_.Fail();
    v = static_cast<message::ViewVote::Kind>(kind);
  }
  void operator()(PairWord::Kind& v) {
    const uint8_t kind = in_.U8();
    if (kind > static_cast<uint8_t>(PairWord::Kind::kGone)) return in_.Fail();
    v = static_cast<PairWord::Kind>(kind);
  }
  void operator()(EdgeWord::Kind& v) {
    const uint8_t kind = in_.U8();
    if (kind > static_cast<uint8_t>(EdgeWord::Kind::kCut)) return in_.Fail();
    v = static_cast<EdgeWord::Kind>(kind);
  }
  void operator()(std::vector<uint32_t>& marks) {
    marks.resize(in_.Count(kMaxTableMarks, sizeof(uint32_t)));
    for (uint32_t& mark : marks) mark = in_.U32();
  }
  void operator()(std::vector<Seat>& items) { Items(items, kMaxSeats, kSeatBytes, DecodeSeat); }
  void operator()(std::vector<Vacancy>& items) {
    Items(items, kMaxSeats, kVacancyBytes, DecodeVacancy);
  }
  void operator()(std::vector<Contact>& items) {
    Items(items, kMaxContacts, kContactBytes,
          [](ByteReader& in) { return std::optional(DecodeContact(in)); });
  }

 private:
  template <class T, class Decode>
  void Items(std::vector<T>& items, size_t most, size_t min_bytes, Decode decode) {
    const uint32_t count = in_.Count(most, min_bytes);
    for (uint32_t i = 0; i < count && in_.ok(); ++i)
      // An item that does not decode has failed the reader, which ends the loop.
      if (auto item = decode(in_)) items.push_back(std::move(*item));
  }
  ByteReader& in_;
};

// f(field)... for the fields of a message, in wire order; M is const when writing.
template <class M, class F>
void Fields(M& m, F&& f) {
  using T = std::remove_const_t<M>;
  using namespace message;
  if constexpr (std::is_same_v<T, RoundFrame>)
    (f(m.view), f(m.epoch), f(m.averaging), f(m.round), f(m.group), f(m.frame));
  else if constexpr (std::is_same_v<T, DueFor>)
    (f(m.view), f(m.averaging), f(m.committed), f(m.seats));
  else if constexpr (std::is_same_v<T, Begin>)
    (f(m.view), f(m.averaging));  // NOLINT(bugprone-branch-clone): as another message
  else if constexpr (std::is_same_v<T, SeatingNews>)
    (f(m.view), f(m.seats), f(m.vacancies), f(m.contacts), f(m.all));
  else if constexpr (std::is_same_v<T, JoinRequest>)
    (f(m.member), f(m.contact), f(m.next), f(m.holds), f(m.trained), f(m.schema), f(m.lineage));
  else if constexpr (std::is_same_v<T, JoinAnswer>) {
    (f(m.kind), f(m.committed), f(m.contacts), f(m.reason));
    if (m.kind == JoinAnswer::Kind::kRefused) f(m.marks);
  } else if constexpr (std::is_same_v<T, ViewNews>)
    (f(m.view), f(m.seats), f(m.vacancies), f(m.contacts), f(m.committed), f(m.job_seconds));
  else if constexpr (std::is_same_v<T, ViewOpen>)
    (f(m.parent), f(m.ballot));
  else if constexpr (std::is_same_v<T, ViewPromise>)
    (f(m.parent), f(m.ballot), f(m.promised), f(m.accepted), f(m.value), f(m.begun));
  else if constexpr (std::is_same_v<T, ViewAccept>)
    (f(m.parent), f(m.ballot), f(m.view));
  else if constexpr (std::is_same_v<T, ViewAccepted>)
    (f(m.parent), f(m.ballot), f(m.promised));
  else if constexpr (std::is_same_v<T, BranchOpen> || std::is_same_v<T, BranchHeld>)
    (f(m.parent), f(m.attempt));
  else if constexpr (std::is_same_v<T, BranchJoin>)
    (f(m.parent), f(m.attempt), f(m.next_averaging));
  else if constexpr (std::is_same_v<T, BranchView>)
    (f(m.parent), f(m.attempt), f(m.view));
  else if constexpr (std::is_same_v<T, Leaving>)
    f(m.view);
  else if constexpr (std::is_same_v<T, ListInUse>)
    (f(m.view), f(m.averaging), f(m.round), f(m.group), f(m.seats), f(m.vacancies));
  else if constexpr (std::is_same_v<T, CountedAsk> || std::is_same_v<T, ListAsk>)
    f(m.instance);
  else if constexpr (std::is_same_v<T, CountedAnswer>)
    (f(m.instance), f(m.counted));
  else if constexpr (std::is_same_v<T, ViewVoteAsk>)
    (f(m.held), f(m.named));
  else if constexpr (std::is_same_v<T, ViewVote>)
    (f(m.named), f(m.kind), f(m.ballot));
  else if constexpr (std::is_same_v<T, Pair>)
    (f(m.view), f(m.word.kind), f.Any(m.word.number));
  else if constexpr (std::is_same_v<T, Neighbour>)
    (f(m.view), f(m.word.kind), f(m.word.step));
  else if constexpr (std::is_same_v<T, LeasesWanted>)
    (f(m.view), f(m.averaging));
  else if constexpr (std::is_same_v<T, LedgerAsk>)
    (f(m.view), f(m.next), f(m.mark));
  else if constexpr (std::is_same_v<T, LedgerNews>)
    (f(m.view), f(m.ledger));
  else
    static_assert(std::is_same_v<T, ViewAsk>);  // no fields
}

// Reads alternative `kind` of the variant; nothing for an unknown one.
template <size_t... kIndex>
std::optional<Message> ReadKind(size_t kind, ByteReader& in, std::index_sequence<kIndex...>) {
  std::optional<Message> message;
  const auto read = [&]<size_t kAt>() {
    if (kAt != kind) return;
    std::variant_alternative_t<kAt, Message> body;
    Fields(body, Reader(in));
    message.emplace(std::move(body));
  };
  (read.template operator()<kIndex>(), ...);
  return message;
}

}  // namespace

void Encode(const Contact& contact, ByteWriter& out) {
  out.Raw(contact.id.view());
  out.String(contact.worker);
  out.String(contact.peer_endpoint);
  out.String(contact.tensor_endpoint);
}

Contact DecodeContact(ByteReader& in) {
  Contact contact;
  contact.id = ReadId<PeerId>(in);
  contact.worker = in.String(kMaxName);
  contact.peer_endpoint = in.String(kMaxEndpoint);
  contact.tensor_endpoint = in.String(kMaxEndpoint);
  return contact;
}

// Averagings count to kMaxNumber at most. This bit of theirs: cells follow. What is said without
// cells is as it was before there were any.
constexpr uint64_t kCellsFollow = 1ULL << 63;

void Encode(const Committed& committed, ByteWriter& out) {
  out.U64(committed.averaging.value() | (committed.cells.empty() ? 0 : kCellsFollow));
  out.Raw(committed.root.view());
  out.F64(committed.job_samples);
  if (!committed.cells.empty()) out.U64(committed.cells.bits());
}

Committed DecodeCommitted(ByteReader& in) {
  Committed committed;
  const uint64_t averaging = in.U64();
  committed.averaging = AveragingId(averaging & ~kCellsFollow);
  committed.root = ReadId<Digest>(in);
  committed.job_samples = in.F64();
  if ((averaging & kCellsFollow) != 0) {
    committed.cells = RankSet::FromBits(in.U64());
    if (committed.cells.empty()) in.Fail();  // there is one encoding for each
  }
  if (committed.averaging.value() > kMaxNumber) in.Fail();
  if (!(committed.job_samples >= 0 && committed.job_samples <= kMaxSamples)) in.Fail();
  return committed;
}

Bytes EncodeMessage(const Message& message) {
  ByteWriter out;
  out.U8(static_cast<uint8_t>(message.index()));
  std::visit([&](const auto& body) { Fields(body, Writer(out)); }, message);
  return out.Take();
}

std::optional<Message> DecodeMessage(ByteView bytes) {
  ByteReader in(bytes);
  const size_t kind = in.U8();
  if (!in.ok()) return std::nullopt;
  auto message = ReadKind(kind, in, std::make_index_sequence<std::variant_size_v<Message>>());
  if (!message || !in.Done()) return std::nullopt;
  return message;
}

}  // namespace crowdsurf::worker
