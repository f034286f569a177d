// Safetensors: the model file, small writer and reader for float32 tensors.
//
// Format (huggingface/safetensors, README "Format"): u64 little-endian length of a JSON header; the
// header, an object of name -> {"dtype", "shape", "data_offsets": [begin, end)} relative to the end
// of the header, with optional "__metadata__" of string to string, padded with spaces to a multiple
// of eight; then the data, row-major, without holes. Only F32 is read and written. A file that
// breaks a rule is refused with words, never trusted. Any thread.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "worker/trainer/parameters.h"

namespace crowdsurf::trainer {

inline constexpr uint64_t kMaxSafetensorsHeader = 16u
                                                  << 20;  // bytes; the format's own limit: 100 MB

struct Safetensors {
  std::vector<TensorSpec> tensors;  // in the order of their data; offsets in elements
  std::vector<float> values;        // all data
  std::map<std::string, std::string> metadata;

  const TensorSpec* Find(std::string_view name) const;
};

Bytes EncodeSafetensors(const ParameterTable& table, std::span<const float> values,
                        const std::map<std::string, std::string>& metadata);
// InvalidArgument: what is wrong with the file.
StatusOr<Safetensors> DecodeSafetensors(ByteView file);

// Temporary name, then rename. Errors name the path.
Status WriteSafetensors(const std::string& path, const ParameterTable& table,
                        std::span<const float> values,
                        const std::map<std::string, std::string>& metadata);
StatusOr<Safetensors> ReadSafetensors(const std::string& path);

// The flat vector of `table` from the file's tensors, by name. InvalidArgument lists every tensor
// that is missing or of another shape.
StatusOr<std::vector<float>> ParametersFrom(const Safetensors& file, const ParameterTable& table);

}  // namespace crowdsurf::trainer
