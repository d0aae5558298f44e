// The Hopper engine's configuration and what follows from it: tile geometry, shared-memory layout,
// threads and registers. Plain constants, host and device. Read sm90_engine.cuh next.
//
// The engine computes D^T [weight rows x tokens] = W [weight rows x K] X [tokens x K]^T, with the
// tokens on wgmma's N side: token counts are multiples of 8, so an expert with 271 tokens is one
// tile of 136 + 136 and not three of 128.
#pragma once

#include <cstdint>

#include "gemm/policies.h"
#include "slipstream/tensor.h"

namespace slipstream::sm90 {

// How weight rows and tokens are split over thread blocks. Speed only.
enum class TileShape : std::int32_t {
  kSolo = 0,  // one block: 128 weight rows; its two warpgroups split the tokens
  kPair = 1,  // a cluster of two: 256 weight rows each; the blocks split the tokens and each
              // multicasts half of the weights; the warpgroups split the weight rows. Halves the
              // gather work of a block.
};

struct Sm90Config {
  DType dtype;
  OperandSource source;
  EpilogueKind epilogue;
  TileShape shape;
  std::int32_t tile_rows;     // most tokens of a tile
  std::int32_t num_stages;    // depth of the load pipeline
  std::int32_t staging_rows;  // tokens of one warpgroup that the epilogue stages at once
};

inline constexpr int kTileMaxRows = 288;     // of any kernel: what 2 x 144 accumulators hold
inline constexpr int kMathWeightRows = 128;  // weight rows of one warpgroup: two m64 blocks
inline constexpr int kStepK = 64;            // elements of k in a stage: one 128-byte swizzle row
inline constexpr int kRowBytes = 128;        // bytes of a stage's row
inline constexpr int kStoreColumns = 64;     // output columns of one TMA store: 128 bytes
inline constexpr int kNumMathWarpgroups = 2;
inline constexpr int kNumMathWarps = 8;
inline constexpr int kNumGatherThreads = 128;
inline constexpr int kWorkSlots = 4;  // work items decoded ahead
inline constexpr int kMaxSharedBytes = 232448;
inline constexpr int kMaxRowBoxes = 32;  // TMA boxes of 8, 16, .. 256 rows

template <Sm90Config kConfig>
struct Sm90Layout {
  static constexpr bool kPair = kConfig.shape == TileShape::kPair;
  static constexpr bool kGather = kConfig.source == OperandSource::kGather;
  static constexpr bool kSwiGlu = kConfig.epilogue == EpilogueKind::kSwiGlu;

  static constexpr int kClusterSize = kPair ? 2 : 1;
  static constexpr int kWeightRows = kPair ? 256 : 128;  // of a block's stage
  static constexpr int kWeightRowsPerLoad = kWeightRows / kClusterSize;
  static constexpr int kTokens = kConfig.tile_rows / kClusterSize;  // of a block's stage
  static constexpr int kMathTokens = kConfig.tile_rows / 2;         // most of one warpgroup
  static constexpr int kBlockColumns = kSwiGlu ? kWeightRows / 2 : kWeightRows;  // of the output
  static constexpr int kMathColumns = kSwiGlu ? kMathWeightRows / 2 : kMathWeightRows;
  static constexpr int kStoreBoxes = kMathColumns / kStoreColumns;  // of one warpgroup

  // Warps: math 0-7; then, by source, the other roles. A warpgroup shares one register budget.
  static constexpr int kNumThreads = kGather ? 512 : 384;
  static constexpr int kFirstGatherWarp = kNumMathWarps;
  static constexpr int kFirstSingleWarp = kGather ? kNumMathWarps + 4 : kNumMathWarps;
  static constexpr int kProducerWWarp = kFirstSingleWarp;
  static constexpr int kSchedulerWarp = kFirstSingleWarp + 1;
  static constexpr int kStorerWarp = kFirstSingleWarp + 2;
  static constexpr int kProducerRowsWarp = kFirstSingleWarp + 3;

  static constexpr int kMathRegisters = kGather ? 208 : 232;
  static constexpr int kGatherRegisters = 56;
  static constexpr int kSingleRegisters = 40;
  static_assert(kNumMathWarpgroups * kMathRegisters + (kGather ? kGatherRegisters : 0) +
                        kSingleRegisters <=
                    512,
                "setmaxnreg would wait for ever for registers that no warpgroup gives back");

  // Shared memory, in this order. Stages and staging need 1024-byte alignment (swizzle).
  static constexpr int kWeightBytes = kWeightRows * kRowBytes;
  static constexpr int kTokenBytes = kTokens * kRowBytes;
  static constexpr int kStageBytes = kWeightBytes + kTokenBytes;
  static constexpr int kStagingBoxBytes = kConfig.staging_rows * kRowBytes;
  static constexpr int kStagingBytes = kStoreBoxes * kStagingBoxBytes;  // of one warpgroup
  static constexpr int kStagingOffset = kConfig.num_stages * kStageBytes;
  static constexpr int kBarrierOffset = kStagingOffset + kNumMathWarpgroups * kStagingBytes;
  static constexpr int kBarrierBytes = 512;
  static constexpr int kSharedBytes = kBarrierOffset + kBarrierBytes;
  static_assert(kConfig.tile_rows % 16 == 0 && kConfig.tile_rows <= kTileMaxRows);
  static_assert(kTokenBytes % 1024 == 0 && kStagingBoxBytes % 1024 == 0);
  static_assert(kConfig.staging_rows % 8 == 0 && kConfig.staging_rows <= kMathTokens);
  static_assert(kSharedBytes <= kMaxSharedBytes, "stages and staging exceed shared memory");

  // Arrivals that fill a stage: the weight producer's, and the token producers'.
  static constexpr int kFullArrivals = 1 + (kGather ? kNumGatherThreads : 1);
  // Arrivals that free a stage: every math warp of every block whose loads write into it.
  static constexpr int kEmptyArrivals = kNumMathWarps * kClusterSize;
  // Readers of a work item: weight producer, token producers, math warps, storer, in each block.
  static constexpr int kWorkReaders =
      kClusterSize * (1 + (kGather ? kNumGatherThreads / 32 : 1) + kNumMathWarps + 1);
};

}  // namespace slipstream::sm90
