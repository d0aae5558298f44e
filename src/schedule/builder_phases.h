// The table builder as three phases without a sort, for host and device. The host drives them in
// host_builder.cc to check them against golden.h; publish_plan drives them on the GPU.
//
// The tokens, in rotated order, are cut into consecutive shares. A phase is a function of (args,
// team, share). All shares of a phase run in any order or at once and communicate only by bits that
// they set; between phases stands a barrier of all shares.
//
//   phase         reads of other shares     writes
//   count_share   nothing                   share_rows, share_totals; clears its part of the bits
//   assign_share  share_rows                slots, slot_tile, row_source of its tokens; token_tile
//                                           and slack of the tiles whose first row it has; bits
//   order_share   share_totals, all bits    pull_order and job_order entries of its tokens;
//                                           share 0 the counts
//
// Slots are a stable counting sort by (segment, expert) of the tokens in rotated order: from the
// first token of `rank` upwards and around for local-first, from token 0 for ascending order. That
// is the order inside a group: owners by distance, then token, then k. Stability: shares are
// consecutive, a share's warps take consecutive pairs, a warp takes consecutive steps of its width,
// and inside a step match() counts lower threads with the same group.
//
// Orders are prefix sums: smallest slots of different tokens are different rows, so a token's
// position in pull_order is the number of rows before its smallest slot that are some token's
// smallest. Likewise job_order. Every team counts all bits itself: a bit a row is little, a barrier
// is dear.
//
// On a GPU: team = block, share_rows and bits stay in L2, two barriers between blocks. Small calls
// have one share and no barrier.
#pragma once

#include <cstdint>

#include "schedule/builder_args.h"
#include "schedule/builder_common.h"
#include "schedule/team.h"
#include "schedule/tile_policy.h"
#include "slipstream/routing.h"

namespace slipstream::builder {

// ---- count_share --------------------------------------------------------------------------------

// Steps whose pairs are loaded together.
inline constexpr int kBatch = 2;

// Index -1 where a thread has no pair.
template <class Team>
SLIPSTREAM_HD void load_batch(const BuilderArgs& args, const TeamScratch& team,
                              const OwnerRanges& owners, const WarpSteps& steps,
                              std::uint32_t first,
                              typename Team::template Value<Pair> (&pairs)[kBatch]) {
  SLIPSTREAM_UNROLL(kBatch)
  for (int i = 0; i < kBatch; ++i) {
    Team::each([&](int thread) {
      std::uint32_t position = 0;
      const bool exists = steps.template position<Team>(first + static_cast<std::uint32_t>(i),
                                                        thread, team.num_warps, position);
      pairs[i][thread] = exists ? load_pair(args, owners, position) : Pair{-1, -1, -1};
    });
  }
}

// Replaces the warps' rows of a group by their exclusive sums; returns the sum.
SLIPSTREAM_HD inline std::int32_t scan_warps(const TeamScratch& team, std::int32_t group,
                                             std::int32_t num_groups) {
  constexpr int kInFlight = 8;
  std::int32_t before = 0;
  SLIPSTREAM_UNROLL(1)
  for (std::int32_t first = 0; first < team.num_warps; first += kInFlight) {
    std::int32_t rows[kInFlight];
    SLIPSTREAM_UNROLL(kInFlight)
    for (int i = 0; i < kInFlight; ++i) {
      rows[i] = first + i < team.num_warps ? team.warp_rows[(first + i) * num_groups + group] : 0;
    }
    SLIPSTREAM_UNROLL(kInFlight)
    for (int i = 0; i < kInFlight; ++i) {
      if (first + i < team.num_warps) team.warp_rows[(first + i) * num_groups + group] = before;
      before += rows[i];
    }
  }
  return before;
}

// What a thread found among its pairs.
struct PairTally {
  std::int32_t num_invalid_ids;
  std::int32_t num_real_rows;
  std::uint32_t first_invalid;  // the smallest index, as the largest complement: 0 is "none"
};

// Rows of each group in each counting warp, then their exclusive sums over warps. `share_rows` gets
// the groups' totals where it is not null.
template <class Team>
SLIPSTREAM_HD void count_rows(const BuilderArgs& args, const TeamScratch& team,
                              const OwnerRanges& owners, std::int32_t share,
                              std::int32_t* share_rows,
                              typename Team::template Value<PairTally>& tally) {
  const std::int32_t num_groups = args.shape.num_groups();
  const std::int32_t num_entries = team.num_warps * num_groups;
  Team::each([&](int thread) {
    tally[thread] = PairTally{0, 0, 0};
    SLIPSTREAM_UNROLL(1)
    for (std::int32_t i = thread; i < num_entries; i += Team::kThreads) team.warp_rows[i] = 0;
  });
  Team::sync();

  const WarpSteps steps = WarpSteps::of<Team>(args, team, owners, share);
  for (std::uint32_t first = 0; first < steps.num_steps; first += kBatch) {
    typename Team::template Value<Pair> pairs[kBatch];
    load_batch<Team>(args, team, owners, steps, first, pairs);
    SLIPSTREAM_UNROLL(kBatch)
    for (int i = 0; i < kBatch; ++i) {
      Team::each([&](int thread) {
        const Pair& pair = pairs[i][thread];
        if (pair.group >= 0)
          Team::add(team.warp_rows + thread / Team::kWarpWidth * num_groups + pair.group, 1);
        tally[thread].num_real_rows += pair.group >= 0 ? 1 : 0;
        if (pair.index < 0 || !is_invalid_id(pair.expert, args.shape.num_experts)) return;
        tally[thread].num_invalid_ids += 1;
        const std::uint32_t complement = ~static_cast<std::uint32_t>(pair.index);
        if (complement > tally[thread].first_invalid) tally[thread].first_invalid = complement;
      });
    }
  }
  Team::sync();

  Team::each([&](int thread) {
    SLIPSTREAM_UNROLL(1)
    for (std::int32_t group = thread; group < num_groups; group += Team::kThreads) {
      const std::int32_t rows = scan_warps(team, group, num_groups);
      if (share_rows != nullptr) share_rows[group] = rows;
    }
  });
}

template <class Team>
SLIPSTREAM_HD void count_share(const BuilderArgs& args, const TeamScratch& team,
                               std::int32_t share) {
  const OwnerRanges owners(args);
  // Clears its part of the bits, for as many rows as there can be.
  const std::int64_t max_rows = rows_bound(args.shape, owners.num_tokens());
  const Range words =
      share_of(static_cast<std::int32_t>(bit_words(max_rows)), share, args.num_shares);
  Team::each([&](int thread) {
    SLIPSTREAM_UNROLL(1)
    for (std::int32_t word = words.begin + thread; word < words.end; word += Team::kThreads) {
      args.scratch.smallest_bits[word] = 0;
      args.scratch.largest_bits[word] = 0;
    }
  });
  typename Team::template Value<PairTally> tally;
  count_rows<Team>(args, team, owners, share,
                   args.scratch.share_rows + std::int64_t{share} * args.shape.num_groups(), tally);
  typename Team::template Value<std::int64_t> counted;  // ids out of range above, rows below
  typename Team::template Value<std::uint32_t> first_invalid;
  Team::each([&](int thread) {
    counted[thread] =
        (std::int64_t{tally[thread].num_invalid_ids} << 32) + tally[thread].num_real_rows;
    first_invalid[thread] = tally[thread].first_invalid;
  });
  const std::int64_t all_counted = Team::exclusive_sum(counted);
  const std::uint32_t first = ~Team::max(first_invalid);
  Team::each([&](int thread) {
    if (thread != 0) return;
    ShareTotals& totals = args.scratch.share_totals[share];
    totals.num_invalid_ids = static_cast<std::int32_t>(all_counted >> 32);
    totals.num_real_rows = static_cast<std::int32_t>(all_counted & 0x7fffffff);
    totals.first_invalid_pair = first;
  });
}

// ---- assign_share -------------------------------------------------------------------------------

// Where the groups begin, found by every team for itself: rows and tiles of all shares, and where
// the share's own rows begin. Share 0 writes it down.
template <class Team>
SLIPSTREAM_HD void place_groups(const BuilderArgs& args, const TeamScratch& team,
                                std::int32_t share) {
  const std::int32_t num_groups = args.shape.num_groups();
  const std::int32_t groups_per_thread = ceil_div(num_groups, Team::kThreads);
  typename Team::template Value<std::int64_t> sums;  // tiles above, rows below
  Team::each([&](int thread) {
    sums[thread] = 0;
    const std::int32_t first = thread * groups_per_thread;
    SLIPSTREAM_UNROLL(1)
    for (std::int32_t group = first; group < first + groups_per_thread && group < num_groups;
         ++group) {
      std::int32_t before = 0;
      std::int32_t rows = 0;
      SLIPSTREAM_UNROLL(8)
      for (std::int32_t other = 0; other < args.num_shares; ++other) {
        const std::int32_t of_other =
            args.scratch.share_rows[std::int64_t{other} * num_groups + group];
        before += other < share ? of_other : 0;
        rows += of_other;
      }
      const GroupTiles tiles = group_tiles(args.shape, rows);
      team.slot_base[group] = before;
      team.real_rows[group] = rows;
      team.tile_rows[group] = tiles.tile_rows;
      sums[thread] += (std::int64_t{tiles.num_tiles} << 32) + tiles.num_rows;
    }
  });
  const std::int64_t total = Team::exclusive_sum(sums);
  Team::each([&](int thread) {
    const std::int32_t first = thread * groups_per_thread;
    std::int64_t at = sums[thread];
    SLIPSTREAM_UNROLL(1)
    for (std::int32_t group = first; group < first + groups_per_thread && group < num_groups;
         ++group) {
      const auto row = static_cast<std::int32_t>(at & 0x7fffffff);
      const auto tile = static_cast<std::int32_t>(at >> 32);
      team.row_begin[group] = row;
      team.tile_begin[group] = tile;
      team.slot_base[group] += row;
      if (share == 0) {
        args.tables.expert_row_begin[group] = row;
        args.tables.expert_tile_begin[group] = tile;
      }
      const GroupTiles tiles = group_tiles(args.shape, team.real_rows[group]);
      at += (std::int64_t{tiles.num_tiles} << 32) + tiles.num_rows;
    }
    if (thread != 0) return;
    team.row_begin[num_groups] = static_cast<std::int32_t>(total & 0x7fffffff);
    team.tile_begin[num_groups] = static_cast<std::int32_t>(total >> 32);
    if (share != 0) return;
    args.tables.expert_row_begin[num_groups] = team.row_begin[num_groups];
    args.tables.expert_tile_begin[num_groups] = team.tile_begin[num_groups];
  });
  Team::sync();
}

// Groups are dealt out to shares, a group to a warp.
template <class Team>
SLIPSTREAM_HD void write_padding(const BuilderArgs& args, const TeamScratch& team,
                                 std::int32_t share) {
  if (args.shape.tile_policy != TilePolicy::kFixed128) return;
  Team::each([&](int thread) {
    const std::int32_t warp = share * Team::kWarps + thread / Team::kWarpWidth;
    SLIPSTREAM_UNROLL(1)
    for (std::int32_t group = warp; group < args.shape.num_groups();
         group += args.num_shares * Team::kWarps) {
      const std::int32_t end = team.row_begin[group + 1];
      const std::int32_t begin = team.row_begin[group] + team.real_rows[group];
      SLIPSTREAM_UNROLL(1)
      for (std::int32_t row = begin + thread % Team::kWarpWidth; row < end; row += Team::kWarpWidth)
        args.tables.row_source[row] = -1;
    }
  });
}

SLIPSTREAM_HD inline void write_pair(const BuilderArgs& args, const TeamScratch& team,
                                     const Pair& pair, std::int32_t slot) {
  const ScheduleTables& tables = args.tables;
  const std::int32_t row_begin = team.row_begin[pair.group];
  const std::int32_t tile_rows = team.tile_rows[pair.group];
  const std::int32_t before = slot - row_begin;
  const std::int32_t tile_of_group = before / tile_rows;
  const std::int32_t tile = team.tile_begin[pair.group] + tile_of_group;
  tables.slots[pair.index] = slot;
  tables.slot_tile[pair.index] = tile;
  tables.row_source[slot] = pair.index;
  if (before != tile_of_group * tile_rows) return;
  // Every tile has a real first row, so exactly one pair describes it.
  const std::int32_t real_left = team.real_rows[pair.group] - before;
  const std::int32_t left = team.row_begin[pair.group + 1] - slot;
  const std::int32_t num_rows = real_left < tile_rows ? real_left : tile_rows;
  tables.token_tile[tile] = TokenTile{pair.expert, slot, num_rows};
  tables.slack[tile] = (left < tile_rows ? left : tile_rows) - num_rows;
}

// Flags the smallest and the largest slot of each token, and counts tokens that have one.
template <class Team>
SLIPSTREAM_HD void flag_tokens(const BuilderArgs& args, const TeamScratch& team,
                               const OwnerRanges& owners, std::int32_t share) {
  Team::each([&](int thread) {
    SLIPSTREAM_UNROLL(1)
    for (int rank = thread; rank < kMaxRanks; rank += Team::kThreads) team.owner_tokens[rank] = 0;
  });
  Team::sync();
  const Range tokens = share_tokens(args, owners, share);
  Team::each([&](int thread) {
    SLIPSTREAM_UNROLL(1)
    for (std::int32_t i = tokens.begin + thread; i < tokens.end; i += Team::kThreads) {
      const std::int32_t token = rotate(i, owners.first_token(args.shape), owners.num_tokens());
      const SlotSpan span = slot_span(args, token);
      if (span.largest < 0) continue;
      Team::set_bits(args.scratch.smallest_bits + span.smallest / 32, 1U << span.smallest % 32);
      Team::set_bits(args.scratch.largest_bits + span.largest / 32, 1U << span.largest % 32);
      Team::add(team.owner_tokens + owners.owner_of(token), 1);
    }
  });
  Team::sync();
  Team::each([&](int thread) {
    SLIPSTREAM_UNROLL(1)
    for (int rank = thread; rank < kMaxRanks; rank += Team::kThreads)
      args.scratch.share_totals[share].owner_tokens[rank] = team.owner_tokens[rank];
  });
}

// `counted`: this team ran count_share for this share last, so that warp_rows still hold.
template <class Team>
SLIPSTREAM_HD void assign_share(const BuilderArgs& args, const TeamScratch& team,
                                std::int32_t share, bool counted) {
  const OwnerRanges owners(args);
  const std::int32_t num_groups = args.shape.num_groups();
  if (!counted) {
    typename Team::template Value<PairTally> unused;
    count_rows<Team>(args, team, owners, share, nullptr, unused);
  }
  place_groups<Team>(args, team, share);
  write_padding<Team>(args, team, share);

  int num_bits = 1;  // of a group, and of num_groups, which stands for "no row"
  while (num_groups >> num_bits != 0) ++num_bits;

  const WarpSteps steps = WarpSteps::of<Team>(args, team, owners, share);
  for (std::uint32_t first = 0; first < steps.num_steps; first += kBatch) {
    typename Team::template Value<Pair> pairs[kBatch];
    load_batch<Team>(args, team, owners, steps, first, pairs);
    SLIPSTREAM_UNROLL(kBatch)
    for (int i = 0; i < kBatch; ++i) {
      typename Team::template Value<std::int32_t> group;
      typename Team::template Value<std::int32_t> before;
      Team::each([&](int thread) {
        const bool has_row = pairs[i][thread].group >= 0;
        group[thread] = has_row ? pairs[i][thread].group : num_groups;
        before[thread] = 0;
        if (has_row) {
          before[thread] = team.warp_rows[thread / Team::kWarpWidth * num_groups + group[thread]];
        } else if (pairs[i][thread].index >= 0) {
          args.tables.slots[pairs[i][thread].index] = -1;
          args.tables.slot_tile[pairs[i][thread].index] = -1;
        }
      });
      Team::warp_sync();
      const auto equal = Team::match(group, num_bits);
      Team::each([&](int thread) {
        if (group[thread] == num_groups) return;
        const std::int32_t slot =
            team.slot_base[group[thread]] + before[thread] + equal[thread].rank;
        write_pair(args, team, pairs[i][thread], slot);
        if (equal[thread].rank != equal[thread].count - 1) return;
        team.warp_rows[thread / Team::kWarpWidth * num_groups + group[thread]] =
            before[thread] + equal[thread].count;
      });
      Team::warp_sync();
    }
  }
  Team::sync();
  flag_tokens<Team>(args, team, owners, share);
}

// ---- order_share --------------------------------------------------------------------------------

// Flagged rows before a row. Word prefixes lie `words_per_prefix` words apart.
struct BitRanks {
  const std::uint32_t* bits;
  const std::int32_t* prefix;
  std::int32_t words_per_prefix;

  SLIPSTREAM_HD std::int32_t before(std::int32_t row) const {
    const std::int32_t word = row / 32;
    const std::int32_t first = word / words_per_prefix;
    std::int32_t count = prefix[first];
    SLIPSTREAM_UNROLL(1)
    for (std::int32_t i = first * words_per_prefix; i < word; ++i) count += count_bits(bits[i]);
    return count + count_bits(bits[word] & ((1U << row % 32) - 1U));
  }
};

// Fills the prefixes of both kinds of flags and returns how many there are of the smallest, by
// every team for itself.
template <class Team>
SLIPSTREAM_HD std::int32_t rank_bits(const BuilderArgs& args, const TeamScratch& team,
                                     std::int32_t num_words, std::int32_t words_per_prefix) {
  const std::int32_t num_prefixes = ceil_div(num_words, words_per_prefix);
  const std::int32_t per_thread = ceil_div(num_prefixes, Team::kThreads);
  typename Team::template Value<std::int64_t> sums;  // largest above, smallest below
  const auto visit = [&](int thread, std::int64_t count, auto on_prefix) {
    SLIPSTREAM_UNROLL(1)
    for (std::int32_t i = thread * per_thread; i < (thread + 1) * per_thread && i < num_prefixes;
         ++i) {
      on_prefix(i, count);
      const std::int32_t begin = i * words_per_prefix;
      SLIPSTREAM_UNROLL(1)
      for (std::int32_t word = begin; word < begin + words_per_prefix && word < num_words; ++word) {
        count += count_bits(args.scratch.smallest_bits[word]);
        count += std::int64_t{count_bits(args.scratch.largest_bits[word])} << 32;
      }
    }
    return count;
  };
  Team::each(
      [&](int thread) { sums[thread] = visit(thread, 0, [](std::int32_t, std::int64_t) {}); });
  const std::int64_t total = Team::exclusive_sum(sums);
  Team::each([&](int thread) {
    visit(thread, sums[thread], [&](std::int32_t i, std::int64_t count) {
      team.bit_prefix[i] = static_cast<std::int32_t>(count & 0x7fffffff);
      team.bit_prefix[team.prefix_words + i] = static_cast<std::int32_t>(count >> 32);
    });
  });
  return static_cast<std::int32_t>(total & 0x7fffffff);
}

// Share 0's extra part.
template <class Team>
SLIPSTREAM_HD void write_counts(const BuilderArgs& args, const TeamScratch& team,
                                const OwnerRanges& owners, std::int32_t num_pull_tokens,
                                std::int32_t num_null_jobs) {
  const ScheduleShape& shape = args.shape;
  const std::int32_t num_groups = shape.num_groups();
  typename Team::template Value<std::uint32_t> tile_rows;
  Team::each([&](int thread) {
    tile_rows[thread] = 0;
    SLIPSTREAM_UNROLL(1)
    for (std::int32_t group = thread; group < num_groups; group += Team::kThreads) {
      const auto capacity =
          static_cast<std::uint32_t>(group_tiles(shape, team.real_rows[group]).capacity);
      if (capacity > tile_rows[thread]) tile_rows[thread] = capacity;
    }
  });
  const std::uint32_t max_tile_rows = Team::max(tile_rows);
  Team::each([&](int thread) {
    if (thread != 0) return;
    ScheduleCounts counts{};
    std::uint32_t first_invalid = ~0U;
    SLIPSTREAM_UNROLL(8)
    for (std::int32_t share = 0; share < args.num_shares; ++share) {
      const ShareTotals& totals = args.scratch.share_totals[share];
      counts.num_real_rows += totals.num_real_rows;
      counts.num_invalid_ids += totals.num_invalid_ids;
      if (totals.first_invalid_pair < first_invalid) first_invalid = totals.first_invalid_pair;
    }
    counts.num_tokens = owners.num_tokens();
    counts.num_rows = team.row_begin[num_groups];
    counts.num_tiles = team.tile_begin[num_groups];
    counts.num_pull_tokens = num_pull_tokens;
    counts.num_jobs = num_pull_tokens + num_null_jobs;
    counts.first_invalid_pair = static_cast<std::int32_t>(first_invalid);  // all ones become -1
    counts.max_tile_rows = static_cast<std::int32_t>(max_tile_rows);
    *args.tables.counts = counts;
    std::int32_t null_job = 0;
    SLIPSTREAM_UNROLL(1)
    for (std::int32_t owner = 0; owner < shape.num_ranks; ++owner) {
      const std::int32_t tokens = team.owner_tokens[owner];
      args.tables.owner_num_jobs[owner] = tokens > 0 ? tokens : 1;
      if (tokens == 0) args.tables.job_order[null_job++] = -1 - owner;
    }
    for (int rank = 0; rank <= kMaxRanks; ++rank)
      if (rank <= shape.num_ranks) args.tables.owner_token_begin[rank] = owners.begin[rank];
  });
}

// `placed`: this team ran assign_share for some share of this call, so that it knows where the
// groups begin.
template <class Team>
SLIPSTREAM_HD void order_share(const BuilderArgs& args, const TeamScratch& team, std::int32_t share,
                               bool placed) {
  const OwnerRanges owners(args);
  if (!placed) place_groups<Team>(args, team, args.num_shares);  // no share: writes no table
  Team::sync();
  Team::each([&](int thread) {
    SLIPSTREAM_UNROLL(1)
    for (int rank = thread; rank < kMaxRanks; rank += Team::kThreads) {
      std::int32_t tokens = 0;
      SLIPSTREAM_UNROLL(8)
      for (std::int32_t other = 0; other < args.num_shares; ++other)
        tokens += args.scratch.share_totals[other].owner_tokens[rank];
      team.owner_tokens[rank] = tokens;
    }
  });
  const std::int32_t num_words =
      static_cast<std::int32_t>(bit_words(team.row_begin[args.shape.num_groups()]));
  const std::int32_t words_per_prefix =
      num_words <= team.prefix_words ? 1 : ceil_div(num_words, team.prefix_words);
  const BitRanks smallest{args.scratch.smallest_bits, team.bit_prefix, words_per_prefix};
  const BitRanks largest{args.scratch.largest_bits, team.bit_prefix + team.prefix_words,
                         words_per_prefix};
  const std::int32_t num_pull_tokens = rank_bits<Team>(args, team, num_words, words_per_prefix);
  Team::sync();

  std::int32_t num_null_jobs = 0;
  SLIPSTREAM_UNROLL(1)
  for (std::int32_t owner = 0; owner < args.shape.num_ranks; ++owner)
    num_null_jobs += team.owner_tokens[owner] == 0 ? 1 : 0;
  const Range tokens = share_tokens(args, owners, share);
  Team::each([&](int thread) {
    SLIPSTREAM_UNROLL(1)
    for (std::int32_t i = tokens.begin + thread; i < tokens.end; i += Team::kThreads) {
      const std::int32_t token = rotate(i, owners.first_token(args.shape), owners.num_tokens());
      const SlotSpan span = slot_span(args, token);
      if (span.largest < 0) continue;
      args.tables.pull_order[smallest.before(span.smallest)] = token;
      args.tables.job_order[num_null_jobs + largest.before(span.largest)] = token;
    }
  });
  if (share == 0) write_counts<Team>(args, team, owners, num_pull_tokens, num_null_jobs);
}

}  // namespace slipstream::builder
