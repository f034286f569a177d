// Safetensors: the header of `model.safetensors` from a link's tensor table.
//
// Pure; the edge writes the bytes (checkpoint.h). Format (huggingface/safetensors, README
// "Format"): u64 little-endian length of a JSON header, the header: name -> {dtype, shape,
// data_offsets}, optional
// "__metadata__" of string to string, padded with spaces to a multiple of eight; then the data,
// row-major, without holes.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "worker/core/link/link_layout.h"

namespace crowdsurf::worker {

// Whether a model has the tensor: it is shared, and no optimizer's moment, which nobody needs to
// compute with the model.
bool InModel(const LinkTensor& tensor);

// Length and header for the tensors of a model, in table order; ModelData follows. Pre: names are
// the link's (printable ASCII, unique).
Bytes EncodeSafetensorsHeader(const std::vector<LinkTensor>& tensors,
                              const std::map<std::string, std::string>& metadata);

// The parts of the averaged vector that a model has, in table order, as few as can be: views into
// `average`. Pre: LayOutLink placed the tensors, and `average` is their vector.
std::vector<ByteView> ModelData(const std::vector<LinkTensor>& tensors,
                                std::span<const float> average);

}  // namespace crowdsurf::worker
