// What the builder's phases share: how work is cut into shares, and which row a routed pair is.
// Read builder_phases.h, which says how they play together.
#pragma once

#include <cstdint>

#include "schedule/builder_args.h"
#include "schedule/team.h"
#include "slipstream/routing.h"

namespace slipstream::builder {

struct Range {
  std::int32_t begin;
  std::int32_t end;
};

// Shares of ceil(total / num_shares), so that late ones may be short or empty. Unsigned 32-bit
// arithmetic holds it, and a GPU divides 64-bit numbers ten times slower than a share loads its
// rows.
SLIPSTREAM_HD inline Range share_of(std::int32_t total, std::int32_t share,
                                    std::int32_t num_shares) {
  const auto all = static_cast<std::uint32_t>(total);
  const std::uint32_t step =
      (all + static_cast<std::uint32_t>(num_shares) - 1U) / static_cast<std::uint32_t>(num_shares);
  const std::uint32_t begin = step * static_cast<std::uint32_t>(share);
  return Range{static_cast<std::int32_t>(begin < all ? begin : all),
               static_cast<std::int32_t>(all - begin > step && begin < all ? begin + step : all)};
}

// Whose token is it. The loops have constant bounds, so that the array stays in registers.
struct OwnerRanges {
  std::int32_t begin[kMaxRanks + 1];

  SLIPSTREAM_HD explicit OwnerRanges(const BuilderArgs& args) {
    begin[0] = 0;
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      const bool exists = rank < args.shape.num_ranks;
      begin[rank + 1] = begin[rank] + (exists ? args.tokens_per_rank[rank] : 0);
    }
  }

  SLIPSTREAM_HD std::int32_t num_tokens() const { return begin[kMaxRanks]; }

  SLIPSTREAM_HD std::int32_t owner_of(std::int32_t token) const {
    std::int32_t owner = 0;
    for (int rank = 1; rank < kMaxRanks; ++rank) owner += token >= begin[rank] ? 1 : 0;
    return owner;
  }

  SLIPSTREAM_HD Range range_of(std::int32_t token) const {
    Range range{0, 0};
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      if (token >= begin[rank]) range = Range{begin[rank], begin[rank + 1]};
    }
    return range;
  }

  // First token in rotated order.
  SLIPSTREAM_HD std::int32_t first_token(const ScheduleShape& shape) const {
    std::int32_t first = 0;
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      if (rank == shape.rank) first = begin[rank];
    }
    return shape.row_order == RowOrder::kLocalFirst ? first : 0;
  }
};

// The `index`-th token in rotated order.
SLIPSTREAM_HD inline std::int32_t rotate(std::int32_t index, std::int32_t first,
                                         std::int32_t num_tokens) {
  const std::int32_t until_wrap = num_tokens - first;
  return index < until_wrap ? index + first : index - until_wrap;
}

// A share's tokens: consecutive in rotated order.
SLIPSTREAM_HD inline Range share_tokens(const BuilderArgs& args, const OwnerRanges& owners,
                                        std::int32_t share) {
  return share_of(owners.num_tokens(), share, args.num_shares);
}

struct Pair {
  std::int32_t index;   // j * K + k
  std::int32_t expert;  // as the caller gave it
  std::int32_t group;   // -1 where no row
};

// `position`: of the pair in rotated order. Rotation is by whole tokens, hence by pairs too.
SLIPSTREAM_HD inline Pair load_pair(const BuilderArgs& args, const OwnerRanges& owners,
                                    std::uint32_t position) {
  const ScheduleShape& shape = args.shape;
  const auto topk = static_cast<std::uint32_t>(shape.topk);
  const std::uint32_t num_pairs = static_cast<std::uint32_t>(owners.num_tokens()) * topk;
  const std::uint32_t rotated =
      position + static_cast<std::uint32_t>(owners.first_token(shape)) * topk;
  const auto index =
      static_cast<std::int32_t>(rotated >= num_pairs ? rotated - num_pairs : rotated);
  const std::int32_t expert = args.topk_ids[index];
  if (!is_routed(expert, shape.num_experts)) return Pair{index, expert, -1};
  std::int32_t segment = 0;
  if (shape.num_segments > 1) {
    const std::int32_t token = index / shape.topk;
    const Range range = owners.range_of(token);
    segment = static_cast<std::int32_t>(std::int64_t{token - range.begin} * shape.num_segments /
                                        (range.end - range.begin));
  }
  return Pair{index, expert, segment * shape.num_experts + expert};
}

// How a share's pairs are dealt to the warps that count: consecutive steps of one warp's width, the
// same number for every warp. Pairs number less than 2^31, so positions fit unsigned 32 bits even
// where a warp looks past the end.
struct WarpSteps {
  std::uint32_t pair_begin;
  std::uint32_t pair_end;
  std::uint32_t num_steps;

  template <class Team>
  SLIPSTREAM_HD static WarpSteps of(const BuilderArgs& args, const TeamScratch& team,
                                    const OwnerRanges& owners, std::int32_t share) {
    const Range tokens = share_tokens(args, owners, share);
    const auto topk = static_cast<std::uint32_t>(args.shape.topk);
    const std::uint32_t begin = static_cast<std::uint32_t>(tokens.begin) * topk;
    const std::uint32_t end = static_cast<std::uint32_t>(tokens.end) * topk;
    const std::uint32_t step_pairs = static_cast<std::uint32_t>(team.num_warps) * Team::kWarpWidth;
    return WarpSteps{begin, end, (end - begin + step_pairs - 1U) / step_pairs};
  }

  // False where the thread has no pair in this step.
  template <class Team>
  SLIPSTREAM_HD bool position(std::uint32_t step, int thread, std::int32_t num_warps,
                              std::uint32_t& at) const {
    const auto warp = static_cast<std::uint32_t>(thread / Team::kWarpWidth);
    const auto lane = static_cast<std::uint32_t>(thread % Team::kWarpWidth);
    at = pair_begin + (warp * num_steps + step) * Team::kWarpWidth + lane;
    return step < num_steps && warp < static_cast<std::uint32_t>(num_warps) && at < pair_end;
  }
};

// A token's smallest and largest slot; -1 where it has no row.
struct SlotSpan {
  std::int32_t smallest;
  std::int32_t largest;
};

SLIPSTREAM_HD inline SlotSpan slot_span(const BuilderArgs& args, std::int32_t token) {
  const std::int32_t topk = args.shape.topk;
  const std::int32_t* const slots = args.tables.slots + std::int64_t{token} * topk;
  SlotSpan span{-1, -1};
  // Unrolled here and below so that a GPU has several loads in flight: one at a time, the latency
  // of each would be most of a phase.
  SLIPSTREAM_UNROLL(8)
  for (std::int32_t k = 0; k < topk; ++k) {
    const std::int32_t slot = slots[k];
    if (slot >= 0 && (span.smallest < 0 || slot < span.smallest)) span.smallest = slot;
    if (slot > span.largest) span.largest = slot;
  }
  return span;
}

SLIPSTREAM_HD inline std::int32_t count_bits(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  return __popc(word);
#else
  return __builtin_popcount(word);
#endif
}

}  // namespace slipstream::builder
