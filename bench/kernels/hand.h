// Hand: the kernels of worker/core/vector as one would write them for AVX-512 alone.
//
// Purpose: the anchor of K1. Each does exactly what the kernel of its name does (kernels.h,
// int8_chunk.h), to the bit, for finite inputs of whole vectors of 64 values; what is rare takes a
// slow way aside. Without checks and without a choice at run time. Pure; any thread; nothing is
// allocated. Pre: Works(). Source: ours; docs/data-plane.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crowdsurf::bench::hand {

// This processor has AVX-512 F, BW, DQ and VL.
bool Works();

void AddFloat32(float weight, const uint8_t* x, float* acc, size_t count);
void AddFloat16(float weight, const uint8_t* x, float* acc, size_t count);
void AddBFloat16(float weight, const uint8_t* x, float* acc, size_t count);
void Scale(float factor, float* x, size_t count);
void ToFloat16(const float* in, uint8_t* out, size_t count);
void ToBFloat16(const float* in, uint8_t* out, size_t count);
void FromFloat16(const uint8_t* in, float* out, size_t count);
void FromBFloat16(const uint8_t* in, float* out, size_t count);
bool AllFiniteFloat32(const uint8_t* x, size_t count);
bool AllFiniteFloat16(const uint8_t* x, size_t count);

void ToInt8(const float* in, uint8_t* out, size_t count);
void ToInt8Dithered(uint32_t key, uint32_t first, const float* in, uint8_t* out, size_t count);
void FromInt8(const uint8_t* in, float* out, size_t count);
void AddInt8(float weight, const uint8_t* in, float* acc, size_t count);

}  // namespace crowdsurf::bench::hand
