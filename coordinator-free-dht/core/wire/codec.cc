#include "coordinator-free-dht/core/wire/codec.h"

#include <utility>

namespace crowdsurf::dht {
namespace {

constexpr uint8_t kVersion = 2;
// Least bytes of an element, so that a count cannot make us allocate more than the input is long.
constexpr size_t kMinContact = 32 + 4;
constexpr size_t kMinHave = 32 + 8;
constexpr size_t kMinRecord = 32 + 32 + 8 + 8 + 8 + 8 + 4 + 32 + 64;

template <size_t kSize>
void ReadArray(ByteReader& in, std::array<uint8_t, kSize>& out) {
  const ByteView bytes = in.Raw(kSize);
  std::copy(bytes.begin(), bytes.end(), out.begin());
}

void Write(ByteWriter& out, const Record& record) {
  WriteHead(out, record);
  out.Blob(record.value);
  out.Raw(record.public_key);
  out.Raw(record.signature);
}

Record ReadRecord(ByteReader& in) {
  Record record;
  record.key = ReadId<Key>(in);
  record.subkey = ReadId<PeerId>(in);
  record.boot = in.U64();
  record.sequence = in.U64();
  record.written = WallTime::FromNanoseconds(in.I64());
  record.expiry = WallTime::FromNanoseconds(in.I64());
  // Its life is the difference: it must not be negative, and must fit.
  if (record.written < WallTime() || record.expiry < record.written) in.Fail();
  // The holder's own limit may be lower; Store refuses and counts a larger value.
  const ByteView value = in.Blob(kMaxValue);
  record.value.assign(value.begin(), value.end());
  ReadArray(in, record.public_key);
  ReadArray(in, record.signature);
  return record;
}

void Write(ByteWriter& out, const std::vector<Contact>& contacts) {
  out.U32(static_cast<uint32_t>(contacts.size()));
  for (const Contact& contact : contacts) {
    out.Raw(contact.id.view());
    out.String(contact.endpoint);
  }
}

void Read(ByteReader& in, std::vector<Contact>& contacts) {
  const uint32_t n = in.Count(kMaxContacts, kMinContact);
  contacts.reserve(n);
  for (uint32_t i = 0; i < n && in.ok(); ++i) {
    Contact contact;
    contact.id = ReadId<PeerId>(in);
    contact.endpoint = in.String(kMaxEndpoint);
    contacts.push_back(std::move(contact));
  }
}

void Write(ByteWriter& out, const std::vector<RecordPtr>& records) {
  out.U32(static_cast<uint32_t>(records.size()));
  for (const RecordPtr& record : records) Write(out, *record);
}

void Read(ByteReader& in, std::vector<RecordPtr>& records) {
  const uint32_t n = in.Count(kMaxRecords, kMinRecord);
  records.reserve(n);
  for (uint32_t i = 0; i < n && in.ok(); ++i) {
    records.push_back(std::make_shared<const Record>(ReadRecord(in)));
  }
}

struct BodyWriter {
  ByteWriter& out;
  void operator()(const FindRequest& m) const {
    out.Raw(m.target.view());
    out.Bool(m.values);
  }
  void operator()(const FindReply& m) const {
    Write(out, m.contacts);
    Write(out, m.records);
  }
  void operator()(const StoreRequest& m) const { Write(out, m.records); }
  void operator()(const StoreReply& m) const {
    out.U16(m.stored);
    out.U16(m.refused);
  }
  void operator()(const WatchRequest& m) const {
    out.Raw(m.key.view());
    out.I64(m.life.nanoseconds());
    out.U32(static_cast<uint32_t>(m.have.size()));
    for (const Have& have : m.have) {
      out.Raw(have.subkey.view());
      out.U64(have.sequence);
    }
  }
  void operator()(const WatchReply& m) const {
    out.Bool(m.accepted);
    Write(out, m.records);
  }
  void operator()(const WatchPush& m) const { Write(out, m.records); }
};

struct BodyReader {
  ByteReader& in;
  void operator()(FindRequest& m) const {
    m.target = ReadId<Key>(in);
    m.values = in.Bool();
  }
  void operator()(FindReply& m) const {
    Read(in, m.contacts);
    Read(in, m.records);
  }
  void operator()(StoreRequest& m) const { Read(in, m.records); }
  void operator()(StoreReply& m) const {
    m.stored = in.U16();
    m.refused = in.U16();
  }
  void operator()(WatchRequest& m) const {
    m.key = ReadId<Key>(in);
    m.life = Nanoseconds(in.I64());
    // Zero ends a watch. A negative life would be an end before its beginning.
    if (m.life < Duration()) in.Fail();
    const uint32_t n = in.Count(kMaxHave, kMinHave);
    m.have.reserve(n);
    for (uint32_t i = 0; i < n && in.ok(); ++i) {
      Have have;
      have.subkey = ReadId<PeerId>(in);
      have.sequence = in.U64();
      m.have.push_back(have);
    }
  }
  void operator()(WatchReply& m) const {
    m.accepted = in.Bool();
    Read(in, m.records);
  }
  void operator()(WatchPush& m) const { Read(in, m.records); }
};

// Makes the variant hold its alternative number `kind`. False when there is none.
template <size_t kIndex = 0>
bool SelectBody(size_t kind, decltype(Message::body)& body) {
  if constexpr (kIndex == std::variant_size_v<decltype(Message::body)>) {
    return false;
  } else {
    if (kind != kIndex) return SelectBody<kIndex + 1>(kind, body);
    body.emplace<kIndex>();
    return true;
  }
}

}  // namespace

Bytes Encode(const Message& message) {
  ByteWriter out;
  out.U8(kVersion);
  out.U8(static_cast<uint8_t>(message.body.index()));
  out.U64(message.id);
  if (IsReply(message)) {
    out.I64(message.clock.wall.nanoseconds());
    out.Raw(message.clock.public_key);
    out.U64(message.clock.boot);
  }
  std::visit(BodyWriter{out}, message.body);
  return out.Take();
}

std::optional<Message> Decode(ByteView bytes) {
  // Before anything is read, so that a message of any size costs one comparison.
  if (bytes.size() > kMaxMessage) return std::nullopt;
  ByteReader in(bytes);
  // A message of another version is dropped whole: half understood, it would be worse than lost.
  if (in.U8() != kVersion) return std::nullopt;
  Message message;
  const uint8_t kind = in.U8();
  message.id = in.U64();
  if (!in.ok() || !SelectBody(kind, message.body)) return std::nullopt;
  if (IsReply(message)) {
    message.clock.wall = WallTime::FromNanoseconds(in.I64());
    ReadArray(in, message.clock.public_key);
    message.clock.boot = in.U64();
  }
  std::visit(BodyReader{in}, message.body);
  if (!in.Done()) return std::nullopt;
  return message;
}

Bytes EncodeRecord(const Record& record) {
  ByteWriter out;
  Write(out, record);
  return out.Take();
}

std::optional<Record> DecodeRecord(ByteView bytes) {
  ByteReader in(bytes);
  Record record = ReadRecord(in);
  if (!in.Done()) return std::nullopt;
  return record;
}

}  // namespace crowdsurf::dht
