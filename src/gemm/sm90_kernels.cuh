// The list of engine kernels, for one dtype. Included by sm90_kernels_bf16.cu and _fp16.cu only.
//
// Stages and staging share 227 KB.
//   Long K (gate/up): 4 stages; the output of a tile is staged in two halves.
//   Short K (down): the epilogue is a large part of a tile, so nearly all of its output is staged
//   at
//     once (136 of 144 rows a warpgroup) and 3 stages are left.
//   Gather: pair tiles, which halve a block's share of the gathering.
//   Few: at most 64 rows a tile, for calls with a few rows an expert (decode). Weights are all that
//     counts: 8 stages of them are in flight.
//
// What lost, in one run on an H200 (us; E 64, H 4096, I 768, 16384 rows, uniform): rows as pair
// tiles, gate/up 324 against 310, down 189 against 178.
#pragma once

#include "gemm/sm90_engine.cuh"
#include "gemm/sm90_kernels.h"

namespace slipstream::sm90 {

template <DType kDType>
struct DownRows {
  static constexpr Sm90Config kConfig{.dtype = kDType,
                                      .source = OperandSource::kRows,
                                      .epilogue = EpilogueKind::kStore,
                                      .shape = TileShape::kSolo,
                                      .tile_rows = 288,
                                      .num_stages = 3,
                                      .staging_rows = 136};
};
template <DType kDType>
struct DownRowsFew {
  static constexpr Sm90Config kConfig{.dtype = kDType,
                                      .source = OperandSource::kRows,
                                      .epilogue = EpilogueKind::kStore,
                                      .shape = TileShape::kSolo,
                                      .tile_rows = 64,
                                      .num_stages = 8,
                                      .staging_rows = 32};
};
template <DType kDType>
struct GateUpRows {
  static constexpr Sm90Config kConfig{.dtype = kDType,
                                      .source = OperandSource::kRows,
                                      .epilogue = EpilogueKind::kSwiGlu,
                                      .shape = TileShape::kSolo,
                                      .tile_rows = 288,
                                      .num_stages = 4,
                                      .staging_rows = 72};
};
template <DType kDType>
struct GateUpRowsFew {
  static constexpr Sm90Config kConfig{.dtype = kDType,
                                      .source = OperandSource::kRows,
                                      .epilogue = EpilogueKind::kSwiGlu,
                                      .shape = TileShape::kSolo,
                                      .tile_rows = 64,
                                      .num_stages = 8,
                                      .staging_rows = 32};
};
template <DType kDType>
struct GateUpGather {
  static constexpr Sm90Config kConfig{.dtype = kDType,
                                      .source = OperandSource::kGather,
                                      .epilogue = EpilogueKind::kSwiGlu,
                                      .shape = TileShape::kPair,
                                      .tile_rows = 288,
                                      .num_stages = 4,
                                      .staging_rows = 72};
};
template <DType kDType>
struct GateUpGatherFew {
  static constexpr Sm90Config kConfig{.dtype = kDType,
                                      .source = OperandSource::kGather,
                                      .epilogue = EpilogueKind::kSwiGlu,
                                      .shape = TileShape::kSolo,
                                      .tile_rows = 64,
                                      .num_stages = 8,
                                      .staging_rows = 32};
};

template <class Kernel>
Sm90Kernel describe_kernel() {
  return describe_kernel<Kernel::kConfig>(
      reinterpret_cast<const void*>(&sm90_grouped_gemm<Kernel>));
}

template <DType kDType>
std::span<const Sm90Kernel> list_kernels() {
  static const Sm90Kernel kernels[] = {
      describe_kernel<DownRows<kDType>>(),     describe_kernel<DownRowsFew<kDType>>(),
      describe_kernel<GateUpRows<kDType>>(),   describe_kernel<GateUpRowsFew<kDType>>(),
      describe_kernel<GateUpGather<kDType>>(), describe_kernel<GateUpGatherFew<kDType>>(),
  };
  return kernels;
}

}  // namespace slipstream::sm90
