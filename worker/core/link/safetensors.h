// Safetensors: the header of `model.safetensors` from a link's tensor table.
//
// Pure; the edge writes the bytes (checkpoint.h). Format (huggingface/safetensors, README
// "Format"): u64 little-endian length of a JSON header, the header: name -> {dtype, shape,
// data_offsets}, optional
// "__metadata__" of string to string, padded with spaces to a multiple of eight; then the data,
// row-major, without holes, which is just how the link's shared tensors lie.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "worker/core/link/link_layout.h"

namespace crowdsurf::worker {

// Length and header for the shared tensors of `tensors`, in table order; the averaged vector's
// float32 bytes follow as they are. Pre: names are the link's (printable ASCII, unique).
Bytes EncodeSafetensorsHeader(const std::vector<LinkTensor>& tensors,
                              const std::map<std::string, std::string>& metadata);

}  // namespace crowdsurf::worker
