#include "worker/trainer/safetensors.h"

#include <absl/strings/str_join.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/edge/files.h"
#include "worker/core/link/safetensors.h"

namespace crowdsurf::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "values are copied as they lie");

using Json = nlohmann::json;

constexpr size_t kMaxDimensions = 8;  // of one tensor
constexpr int kMaxDepth = 3;          // the header, a tensor, its shape
// As many as 65,536 tensors of eight dimensions have. The text alone bounds them badly: a value of
// two bytes becomes one of sixteen, and an object of four one of a hundred.
constexpr size_t kMaxHeaderValues = size_t{14} << 16;
constexpr size_t kMaxFileBytes = size_t{4} << 30;

Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("safetensors: ", what));
}

// Reads a header, and stops where it is deeper or has more values than a model's.
class HeaderReader : public nlohmann::detail::json_sax_dom_parser<Json> {
  using Base = nlohmann::detail::json_sax_dom_parser<Json>;

 public:
  explicit HeaderReader(Json& header) : Base(header, /*allow_exceptions=*/false) {}
  bool null() { return Room() && Base::null(); }
  bool boolean(bool value) { return Room() && Base::boolean(value); }
  bool number_integer(int64_t value) { return Room() && Base::number_integer(value); }
  bool number_unsigned(uint64_t value) { return Room() && Base::number_unsigned(value); }
  bool number_float(double value, const std::string& text) {
    return Room() && Base::number_float(value, text);
  }
  bool string(std::string& value) { return Room() && Base::string(value); }
  bool start_object(size_t size) { return Open() && Base::start_object(size); }
  bool start_array(size_t size) { return Open() && Base::start_array(size); }
  bool end_object() { return Close() && Base::end_object(); }
  bool end_array() { return Close() && Base::end_array(); }

 private:
  bool Room() { return ++values_ <= kMaxHeaderValues; }
  bool Open() { return ++depth_ <= kMaxDepth && Room(); }
  bool Close() { return --depth_ >= 0; }

  int depth_ = 0;
  size_t values_ = 0;
};

bool IsCount(const Json& value) { return value.is_number_unsigned(); }

// One entry of the header; `data` is the size of the data in bytes.
StatusOr<TensorSpec> DecodeEntry(const std::string& name, const Json& entry, uint64_t data) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets")) {
    return Bad(absl::StrCat(name, ": needs dtype, shape, data_offsets"));
  }
  if (entry["dtype"] != "F32") return Bad(absl::StrCat(name, ": dtype is not F32"));
  const Json &shape = entry["shape"], &offsets = entry["data_offsets"];
  if (!shape.is_array() || shape.size() > kMaxDimensions) return Bad(absl::StrCat(name, ": shape"));
  if (!offsets.is_array() || offsets.size() != 2 || !IsCount(offsets[0]) || !IsCount(offsets[1])) {
    return Bad(absl::StrCat(name, ": data_offsets"));
  }
  const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  if (begin > end || end > data || begin % sizeof(float) != 0) {
    return Bad(absl::StrCat(name, ": data_offsets outside the file"));
  }
  TensorSpec spec;
  spec.name = name;
  uint64_t elements = 1;
  for (const Json& dimension : shape) {
    if (!IsCount(dimension)) return Bad(absl::StrCat(name, ": shape"));
    const auto n = dimension.get<uint64_t>();
    // Divided, so that no product overflows.
    if (n != 0 && elements > data / n) return Bad(absl::StrCat(name, ": shape beyond the file"));
    elements *= n;
    spec.shape.push_back(n);
  }
  if (elements * sizeof(float) != end - begin) {
    return Bad(absl::StrCat(name, ": shape and data_offsets differ"));
  }
  spec.offset = begin / sizeof(float);
  return spec;
}

StatusOr<Safetensors> DecodeHeader(const Json& header, uint64_t data) {
  Safetensors file;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) return Bad("__metadata__: must be an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return Bad("__metadata__: values must be strings");
        file.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    ASSIGN_OR_RETURN(TensorSpec spec, DecodeEntry(name, entry, data));
    file.tensors.push_back(std::move(spec));
  }
  // The header may have any order; the data has neither holes nor overlaps.
  std::sort(file.tensors.begin(), file.tensors.end(),
            [](const TensorSpec& a, const TensorSpec& b) { return a.offset < b.offset; });
  size_t next = 0;
  for (const TensorSpec& tensor : file.tensors) {
    if (tensor.offset != next) return Bad(absl::StrCat(tensor.name, ": overlap or hole before it"));
    next += tensor.elements();
  }
  if (next * sizeof(float) != data) return Bad("data without a tensor at the end");
  return file;
}

}  // namespace

const TensorSpec* Safetensors::Find(std::string_view name) const {
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

Bytes EncodeSafetensors(const ParameterTable& table, std::span<const float> values,
                        const std::map<std::string, std::string>& metadata) {
  CHECK_EQ(values.size(), table.elements());
  std::vector<worker::LinkTensor> tensors;
  for (const TensorSpec& spec : table.tensors()) {
    worker::LinkTensor tensor;
    tensor.name = spec.name;
    tensor.shape.assign(spec.shape.begin(), spec.shape.end());
    tensor.offset = spec.offset * sizeof(float);
    tensors.push_back(std::move(tensor));
  }
  Bytes file = worker::EncodeSafetensorsHeader(tensors, metadata);
  const auto* data = reinterpret_cast<const uint8_t*>(values.data());
  file.insert(file.end(), data, data + values.size_bytes());
  return file;
}

StatusOr<Safetensors> DecodeSafetensors(ByteView file) {
  ByteReader in(file);
  const uint64_t length = in.U64();
  // The length is from outside: it is compared before anything of that size is read.
  if (!in.ok() || length > kMaxSafetensorsHeader || length > in.remaining()) {
    return Bad("no header, or longer than the file");
  }
  const std::string_view text = AsString(in.Raw(length));
  Json header;
  HeaderReader reader(header);
  if (!Json::sax_parse(text, &reader) || !header.is_object())
    return Bad("the header is not a model's JSON object");
  const ByteView data = in.Raw(in.remaining());
  if (data.size() % sizeof(float) != 0) return Bad("data is not a whole number of floats");
  ASSIGN_OR_RETURN(Safetensors result, DecodeHeader(header, data.size()));
  result.values.resize(data.size() / sizeof(float));
  if (!data.empty()) std::memcpy(result.values.data(), data.data(), data.size());
  return result;
}

Status WriteSafetensors(const std::string& path, const ParameterTable& table,
                        std::span<const float> values,
                        const std::map<std::string, std::string>& metadata) {
  const Bytes bytes = EncodeSafetensors(table, values, metadata);
  return WriteFileAtomically(path, {bytes});
}

StatusOr<Safetensors> ReadSafetensors(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxFileBytes));
  return DecodeSafetensors(AsBytes(bytes));
}

StatusOr<std::vector<float>> ParametersFrom(const Safetensors& file, const ParameterTable& table) {
  std::vector<float> flat(table.elements());
  // Tensors that the table does not name are passed over: a file may hold more than one model
  // needs.
  std::vector<std::string> wrong;
  for (const TensorSpec& want : table.tensors()) {
    const TensorSpec* have = file.Find(want.name);
    if (have == nullptr) {
      wrong.push_back(absl::StrCat(want.name, ": missing"));
    } else if (have->shape != want.shape) {
      wrong.push_back(absl::StrCat(want.name, ": shape [", absl::StrJoin(have->shape, ", "),
                                   "] where [", absl::StrJoin(want.shape, ", "), "] is needed"));
    } else {
      std::copy_n(file.values.begin() + static_cast<std::ptrdiff_t>(have->offset), want.elements(),
                  flat.begin() + static_cast<std::ptrdiff_t>(want.offset));
    }
  }
  if (!wrong.empty()) return Bad(absl::StrJoin(wrong, "; "));
  return flat;
}

}  // namespace crowdsurf::trainer
