#include "worker/core/link/link_layout.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "base/text.h"
#include "worker/core/subnet/index_sets.h"

namespace crowdsurf::worker {
namespace {

// Bytes of LinkControl::identity, at the start of the file.
constexpr size_t kIdentityBytes = 256;

uint64_t RoundUp(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

bool PrintableName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxLinkName &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= 0x21 && c <= 0x7e; });
}

// Elements of `shape`, or nullopt when it has a zero or is beyond kMaxLinkElements.
std::optional<uint64_t> CountElements(const std::vector<uint64_t>& shape) {
  uint64_t n = 1;
  for (const uint64_t d : shape) {
    if (d == 0 || d > kMaxLinkElements || n > kMaxLinkElements / d) return std::nullopt;
    n *= d;
  }
  return n;
}

// What is wrong with one declared tensor, in words; empty when nothing is.
std::string Violations(const LinkTensor& t) {
  std::string out;
  const auto add = [&](auto&&... parts) {
    absl::StrAppend(&out, out.empty() ? "" : "; ", "tensor \"", CutText(t.name, kMaxLinkName),
                    "\": ", parts...);
  };
  if (!PrintableName(t.name)) add("name must be 1 to 256 printable ASCII characters");
  if (t.name == "__metadata__") add("the name is that of a model file's metadata");
  if (t.dtype != LinkDtype::kFloat32) {
    add("dtype ", LinkDtypeName(t.dtype), " is reserved: link version 1 carries float32");
  }
  if (t.shape.size() > kMaxLinkDimensions) add("more than 8 dimensions");
  if (t.units.size() > kMaxLinkDimensions) add("more than 8 axes with unit groups");
  const auto n = CountElements(t.shape);
  if (!n) {
    add("every dimension must be at least 1, and elements at most 2^38");
  } else if ((t.rows != 0 || t.cols != 0) && (t.rows == 0 || t.cols == 0 || t.rows > *n ||
                                              t.cols != *n / t.rows || t.rows * t.cols != *n)) {
    // The quotient is compared before the product, which could overflow.
    add("matrix view ", t.rows, " x ", t.cols, " does not cover ", *n, " elements");
  }
  return out;
}

template <class Takes>
StatusOr<UnitSchema> UnitsOf(const std::vector<LinkTensor>& tensors, Takes&& takes) {
  std::vector<UnitTensor> units;
  for (const LinkTensor& t : tensors) {
    if (takes(t)) units.push_back({t.name, t.shape, t.units});
  }
  return UnitSchema::Of(std::move(units));
}

void PlaceRegions(LinkGeometry& g) {
  const uint64_t region = g.elements * sizeof(float);
  g.table_offset = kLinkControlBytes;
  g.index_offset = RoundUp(g.table_offset + g.table_bytes, kLinkRegionAlign);
  g.outbox_offset = RoundUp(g.index_offset + g.index_bytes, kLinkRegionAlign);
  g.inbox_offset[0] = RoundUp(g.outbox_offset + region, kLinkRegionAlign);
  g.inbox_offset[1] = RoundUp(g.inbox_offset[0] + region, kLinkRegionAlign);
  g.file_bytes = RoundUp(g.inbox_offset[1] + region, kLinkRegionAlign);
}

}  // namespace

const char* LinkDtypeName(LinkDtype dtype) {
  static constexpr const char* kNames[] = {"float32", "float16", "bfloat16"};
  return kNames[static_cast<size_t>(dtype)];
}

const char* LinkRoleName(LinkRole role) {
  static constexpr const char* kNames[] = {"Parameter", "OptimizerState", "Buffer", "Gradient",
                                           "Frozen"};
  return kNames[static_cast<size_t>(role)];
}

std::optional<LinkDtype> LinkDtypeNamed(std::string_view name) {
  for (const auto d : {LinkDtype::kFloat32, LinkDtype::kFloat16, LinkDtype::kBFloat16}) {
    if (name == LinkDtypeName(d)) return d;
  }
  return std::nullopt;
}

std::optional<LinkRole> LinkRoleNamed(std::string_view name) {
  for (const auto r : {LinkRole::kParameter, LinkRole::kOptimizerState, LinkRole::kBuffer,
                       LinkRole::kGradient, LinkRole::kFrozen}) {
    if (name == LinkRoleName(r)) return r;
  }
  return std::nullopt;
}

uint64_t LinkTensor::elements() const {
  const auto n = CountElements(shape);
  return n ? *n : 0;
}

StatusOr<LinkGeometry> LayOutLink(std::vector<LinkTensor> declared,
                                  const std::vector<LinkRole>& shared_roles) {
  std::string wrong;
  const auto add = [&](const std::string& what) {
    // A trainer may declare many bad tensors: the message has an end.
    if (!what.empty() && wrong.size() < 4096)
      absl::StrAppend(&wrong, wrong.empty() ? "" : "; ", what);
  };
  if (declared.empty()) add("no tensors");
  if (declared.size() > kMaxLinkTensors) add("more than 65536 tensors");
  // All that is wrong is told at once.
  std::set<std::string_view> names;
  for (const LinkTensor& t : declared) {
    add(Violations(t));
    if (!names.insert(t.name).second) add(absl::StrCat("tensor \"", t.name, "\": named twice"));
  }
  if (!wrong.empty()) return absl::InvalidArgumentError(wrong);

  LinkGeometry g;
  for (LinkTensor& t : declared) {
    const uint64_t n = t.elements();
    if (t.rows == 0) {
      // A vector is one row; any other tensor is its first dimension against the rest.
      t.rows = t.shape.size() < 2 ? 1 : t.shape[0];
      t.cols = n / t.rows;
    }
    const bool shared =
        std::find(shared_roles.begin(), shared_roles.end(), t.role) != shared_roles.end();
    t.offset = shared ? g.elements * sizeof(float) : LinkTensor::kNotShared;
    if (shared) g.elements += n;
    if (g.elements > kMaxLinkElements) {
      return absl::InvalidArgumentError("the tensors have more than 2^38 elements in all");
    }
  }
  if (g.elements == 0) {
    return absl::InvalidArgumentError(
        "no tensor has a role that this job averages (spec.averaging.roles)");
  }
  ASSIGN_OR_RETURN(const UnitSchema units, UnitsOf(declared, [](const auto&) { return true; }));
  g.index_bytes = IndexRegionBytes(units.units());
  g.tensors = std::move(declared);
  const Bytes table = EncodeLinkTable(g.tensors);
  // Equal hashes: the same tensors at the same places, at all workers.
  g.schema = Sha256(table);
  g.table_bytes = table.size();
  PlaceRegions(g);
  return g;
}

UnitSchema UnitsOf(const LinkGeometry& geometry) {
  auto units = UnitsOf(geometry.tensors, [](const LinkTensor& t) { return t.shared(); });
  // LayOutLink has checked them.
  CHECK(units.ok());
  return *std::move(units);
}

Bytes EncodeLinkTable(const std::vector<LinkTensor>& tensors) {
  ByteWriter out;
  out.U32(static_cast<uint32_t>(tensors.size()));
  for (const LinkTensor& t : tensors) {
    out.String(t.name);
    out.U8(static_cast<uint8_t>(t.dtype));
    out.U8(static_cast<uint8_t>(t.role));
    out.U8(static_cast<uint8_t>(t.shape.size()));
    for (const uint64_t d : t.shape) out.U64(d);
    out.U64(t.rows);
    out.U64(t.cols);
    out.U8(static_cast<uint8_t>(t.units.size()));
    for (const UnitAxis& axis : t.units) {
      for (const uint32_t n : {axis.axis, axis.group, axis.unit_size, axis.blocks}) out.U32(n);
    }
    out.U64(t.offset);
  }
  return out.Take();
}

std::optional<std::vector<LinkTensor>> DecodeLinkTable(ByteView bytes) {
  ByteReader in(bytes);
  // Only the form is checked here; LayOutLink checks what the numbers mean.
  constexpr size_t kMin = 4 + 3 + 8 + 8 + 1 + 8;  // a scalar without a name
  std::vector<LinkTensor> tensors(in.Count(kMaxLinkTensors, kMin));
  for (LinkTensor& t : tensors) {
    t.name = in.String(kMaxLinkName);
    const uint8_t dtype = in.U8(), role = in.U8(), dimensions = in.U8();
    if (dtype > 2 || role > 4 || dimensions > kMaxLinkDimensions) return std::nullopt;
    t.dtype = static_cast<LinkDtype>(dtype);
    t.role = static_cast<LinkRole>(role);
    t.shape.resize(dimensions);
    for (uint64_t& d : t.shape) d = in.U64();
    t.rows = in.U64();
    t.cols = in.U64();
    const uint8_t axes = in.U8();
    if (axes > kMaxLinkDimensions) return std::nullopt;
    t.units.resize(axes);
    for (UnitAxis& axis : t.units) {
      for (uint32_t* n : {&axis.axis, &axis.group, &axis.unit_size, &axis.blocks}) *n = in.U32();
    }
    t.offset = in.U64();
  }
  if (!in.Done()) return std::nullopt;
  return tensors;
}

Bytes EncodeLinkIdentity(const LinkGeometry& g) {
  ByteWriter out;
  out.U64(kLinkMagic);
  out.U32(kLinkVersion);
  out.U32(static_cast<uint32_t>(g.tensors.size()));
  out.U64(g.file_bytes);
  out.U64(g.elements);
  out.U64(g.table_offset);
  out.U64(g.table_bytes);
  out.U64(g.index_offset);
  out.U64(g.index_bytes);
  out.U64(g.outbox_offset);
  out.U64(g.inbox_offset[0]);
  out.U64(g.inbox_offset[1]);
  out.U64(0);
  out.Raw(g.schema.view());
  Bytes bytes = out.Take();
  CHECK_LE(bytes.size(), kIdentityBytes);
  bytes.resize(kIdentityBytes);
  return bytes;
}

StatusOr<LinkGeometry> ReadLinkIdentity(ByteView file, uint64_t file_bytes) {
  ByteReader in(file);
  if (in.U64() != kLinkMagic || !in.ok()) return absl::DataLossError("no link: magic differs");
  if (const uint32_t version = in.U32(); version != kLinkVersion) {
    return absl::DataLossError(
        absl::StrCat("link version ", version, ", this agent speaks ", kLinkVersion));
  }
  in.U32();  // tensors: in the table as well
  const uint64_t bytes = in.U64();
  in.U64();  // elements: computed below
  const uint64_t table_offset = in.U64(), table_bytes = in.U64();
  if (!in.ok() || bytes != file_bytes || table_offset != kLinkControlBytes ||
      table_bytes > file.size() || table_offset > file.size() - table_bytes) {
    return absl::DataLossError(
        absl::StrCat("link of ", bytes, " bytes in a file of ", file_bytes, ": truncated"));
  }
  auto tensors = DecodeLinkTable(file.subspan(table_offset, table_bytes));
  if (!tensors) return absl::DataLossError("the link's tensor table is garbled");
  // Which roles are averaged follows from the tensors that have a place.
  std::set<LinkRole> roles;
  for (const LinkTensor& t : *tensors) {
    if (t.shared()) roles.insert(t.role);
  }
  // Laid out anew it must come out the same: this checks offsets, sizes and the hash at once.
  auto laid = LayOutLink(std::move(*tensors), {roles.begin(), roles.end()});
  if (!laid.ok()) return absl::DataLossError(laid.status().message());
  if (Sha256(file.subspan(table_offset, table_bytes)) != laid->schema) {
    return absl::DataLossError("the link's tensor table is no layout of this version");
  }
  const Bytes expected = EncodeLinkIdentity(*laid);
  if (file.size() < expected.size() ||
      !std::equal(expected.begin(), expected.end(), file.begin())) {
    return absl::DataLossError("the link's header does not match its tensor table");
  }
  return laid;
}

}  // namespace crowdsurf::worker
