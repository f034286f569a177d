#include "worker/core/link/safetensors.h"

#include <absl/strings/str_cat.h>

namespace crowdsurf::worker {
namespace {

// A JSON string: quotes, backslashes and control characters escaped; other bytes as they are.
std::string Quoted(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (byte < 0x20) {
      out.append("\\u00").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return out;
}

}  // namespace

bool InModel(const LinkTensor& tensor) {
  return tensor.shared() && tensor.role != LinkRole::kOptimizerState;
}

Bytes EncodeSafetensorsHeader(const std::vector<LinkTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::string json = "{\"__metadata__\":{";
  const char* comma = "";
  for (const auto& [key, value] : metadata) {
    absl::StrAppend(&json, comma, Quoted(key), ":", Quoted(value));
    comma = ",";
  }
  json += "}";
  // In the file: what is left out leaves no hole.
  uint64_t at = 0;
  for (const LinkTensor& t : tensors) {
    // A tensor that the job does not average is not in the vector, so it is not in the model.
    if (!InModel(t)) continue;
    const uint64_t end = at + t.elements() * sizeof(float);
    absl::StrAppend(&json, ",", Quoted(t.name), ":{\"dtype\":\"F32\",\"shape\":[");
    for (size_t i = 0; i < t.shape.size(); ++i)
      absl::StrAppend(&json, i == 0 ? "" : ",", t.shape[i]);
    absl::StrAppend(&json, "],\"data_offsets\":[", at, ",", end, "]}");
    at = end;
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  ByteWriter out;
  out.U64(json.size());
  out.Raw(AsBytes(json));
  return out.Take();
}

std::vector<ByteView> ModelData(const std::vector<LinkTensor>& tensors,
                                std::span<const float> average) {
  const ByteView bytes(reinterpret_cast<const uint8_t*>(average.data()), average.size_bytes());
  std::vector<ByteView> parts;
  uint64_t begin = 0, end = 0;
  const auto take = [&] {
    if (end > begin) parts.push_back(bytes.subspan(begin, end - begin));
  };
  for (const LinkTensor& t : tensors) {
    if (!InModel(t)) continue;
    if (t.offset != end) {
      take();
      begin = t.offset;
    }
    end = t.offset + t.elements() * sizeof(float);
  }
  take();
  return parts;
}

}  // namespace crowdsurf::worker
