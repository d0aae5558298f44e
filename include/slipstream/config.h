// Macros that let one header serve the host compiler and nvcc. Read slipstream.h first.
#pragma once

#if defined(__CUDACC__)
#define SLIPSTREAM_HD __host__ __device__
#else
#define SLIPSTREAM_HD
#endif

// Code that runs once or never must not be copied into every wait of a kernel: a launch that runs
// through its code once is as slow as its instructions are many.
#if defined(__CUDA_ARCH__)
#define SLIPSTREAM_NOINLINE __noinline__
#else
#define SLIPSTREAM_NOINLINE
#endif

namespace slipstream {

// Ranks of one tensor-parallel group share one host. Tables, signals and staging planes are sized
// by this bound, so it is a constant of the library and not an option.
inline constexpr int kMaxRanks = 8;
inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxTopk = 64;
inline constexpr int kMaxChunks = 32;
inline constexpr int kMaxSegments = 16;
inline constexpr int kMaxGroups = 8192;  // segments * experts: a table builder's block counts them

}  // namespace slipstream
