// The table builder as six phases without a sort, for host and device. The host drives them in
// host_builder.cc to check them against golden.h; the GPU builder drives them as one kernel.
//
// A phase is a function of (args, worker). All workers of a phase run in any order or at once and
// do not communicate: a worker writes only what is its own by the rules below and reads only what
// earlier phases wrote. Between phases stands a barrier of all workers.
//
//   phase          a worker's share       writes
//   count_groups   rotated tokens         worker_rows[., worker], ids out of range
//   scan_workers   groups                 worker_rows as sums over workers, sizes of its groups
//   place_groups   groups                 expert_row_begin, expert_tile_begin, padding rows
//   assign_slots   rotated tokens         slots, slot_tile, row_source, row_flags of its tokens;
//                                         token_tile and slack of the tiles whose first row it has
//   count_flags    rows                   number of flags among its rows
//   write_orders   rows                   pull_order, job_order; worker 0 the counts
//
// Slots are a stable counting sort by (segment, expert) of the tokens in rotated order: from the
// first token of `rank` upwards and around for local-first, from token 0 for ascending order. That
// is the order inside a group: owners by distance, then token, then k. Stability: workers take
// consecutive tokens and scan_workers adds up earlier workers; a worker takes consecutive steps of
// Lanes::kWidth pairs; inside a step match() counts lower lanes with the same group.
//
// Orders are prefix sums: smallest slots of different tokens are different rows, so position in
// pull_order = number of rows before it that are some token's smallest. Likewise job_order.
//
// On a GPU: worker = warp, Lanes = WarpLanes. Estimate for 16384 rows, E 64: one cluster of 8 CTAs
// of 16 warps, 128 workers of 4 steps each; worker_rows is 32 KB and stays in L2; 5 cluster
// barriers. scan_workers costs groups * workers / 32 steps over all warps, so many groups want no
// more workers than there are steps of work; a single CTA serves small calls.
#pragma once

#include <cstdint>

#include "schedule/builder_args.h"
#include "schedule/builder_common.h"
#include "schedule/lanes.h"
#include "schedule/tile_policy.h"
#include "slipstream/routing.h"

namespace slipstream::builder {

template <class Lanes>
SLIPSTREAM_HD void count_groups(const BuilderArgs& args, std::int32_t worker) {
  using Int32 = typename Lanes::template Value<std::int32_t>;
  const OwnerRanges owners(args);
  const std::int32_t num_groups = args.shape.num_groups();
  std::int32_t* const rows = args.scratch.worker_rows + worker;
  const std::int64_t stride = args.num_workers;
  Lanes::each([&](int lane) {
    for (std::int32_t group = lane; group < num_groups; group += Lanes::kWidth)
      rows[group * stride] = 0;
  });
  Lanes::sync();

  Int32 num_invalid;
  typename Lanes::template Value<std::uint32_t> first_invalid;
  Lanes::each([&](int lane) {
    num_invalid[lane] = 0;
    first_invalid[lane] = 0xffffffffU;
  });
  const Range tokens = share_of(owners.num_tokens(), worker, args.num_workers);
  const std::int32_t pair_end = tokens.end * args.shape.topk;
  for (std::int32_t step = tokens.begin * args.shape.topk; step < pair_end; step += Lanes::kWidth) {
    Int32 group;
    Lanes::each([&](int lane) {
      group[lane] = -1;
      if (step + lane >= pair_end) return;
      const Pair pair = load_pair(args, owners, step + lane);
      group[lane] = pair.group;
      if (is_invalid_id(pair.expert, args.shape.num_experts)) {
        num_invalid[lane] += 1;
        const auto index = static_cast<std::uint32_t>(pair.index);
        if (index < first_invalid[lane]) first_invalid[lane] = index;
      }
    });
    const auto equal = Lanes::match(group);
    Lanes::each([&](int lane) {
      const bool is_last = equal[lane].rank == equal[lane].count - 1;
      if (group[lane] >= 0 && is_last) rows[group[lane] * stride] += equal[lane].count;
    });
    Lanes::sync();
  }

  const std::int32_t all_invalid = Lanes::sum(num_invalid);
  const std::uint32_t all_first_invalid = Lanes::min(first_invalid);
  Lanes::each([&](int lane) {
    if (lane != 0) return;
    args.scratch.worker_totals[worker].num_invalid_ids = all_invalid;
    args.scratch.worker_totals[worker].first_invalid_pair = all_first_invalid;
  });
}

template <class Lanes>
SLIPSTREAM_HD void scan_workers(const BuilderArgs& args, std::int32_t worker) {
  using Int32 = typename Lanes::template Value<std::int32_t>;
  WorkerTotals totals{};
  const Range groups = share_of(args.shape.num_groups(), worker, args.num_workers);
  for (std::int32_t group = groups.begin; group < groups.end; ++group) {
    std::int32_t* const rows = args.scratch.worker_rows + std::int64_t{group} * args.num_workers;
    std::int32_t before = 0;
    for (std::int32_t step = 0; step < args.num_workers; step += Lanes::kWidth) {
      Int32 sums;
      Lanes::each(
          [&](int lane) { sums[lane] = step + lane < args.num_workers ? rows[step + lane] : 0; });
      const std::int32_t step_total = Lanes::exclusive_sum(sums);
      Lanes::each([&](int lane) {
        if (step + lane < args.num_workers) rows[step + lane] = before + sums[lane];
      });
      before += step_total;
    }
    const GroupTiles tiles = group_tiles(args.shape, before);
    totals.num_real_rows += before;
    totals.num_rows += tiles.num_rows;
    totals.num_tiles += tiles.num_tiles;
    if (tiles.capacity > totals.max_tile_rows) totals.max_tile_rows = tiles.capacity;
    Lanes::each([&](int lane) {
      if (lane == 0) args.scratch.group_real_rows[group] = before;
    });
  }
  Lanes::each([&](int lane) {
    if (lane != 0) return;
    WorkerTotals& mine = args.scratch.worker_totals[worker];
    mine.num_real_rows = totals.num_real_rows;
    mine.num_rows = totals.num_rows;
    mine.num_tiles = totals.num_tiles;
    mine.max_tile_rows = totals.max_tile_rows;
  });
}

template <class Lanes>
SLIPSTREAM_HD void place_groups(const BuilderArgs& args, std::int32_t worker) {
  using Int32 = typename Lanes::template Value<std::int32_t>;
  const ScheduleTables& tables = args.tables;
  const Range earlier{0, worker};
  std::int32_t row = sum_over_workers<Lanes>(
      args, earlier, [](const WorkerTotals& totals) { return totals.num_rows; });
  std::int32_t tile = sum_over_workers<Lanes>(
      args, earlier, [](const WorkerTotals& totals) { return totals.num_tiles; });
  const Range groups = share_of(args.shape.num_groups(), worker, args.num_workers);
  for (std::int32_t step = groups.begin; step < groups.end; step += Lanes::kWidth) {
    Int32 rows;
    Int32 tiles;
    Lanes::each([&](int lane) {
      const std::int32_t group = step + lane;
      rows[lane] = 0;
      tiles[lane] = 0;
      if (group >= groups.end) return;
      const GroupTiles shape = group_tiles(args.shape, args.scratch.group_real_rows[group]);
      args.scratch.group_tile_rows[group] = shape.tile_rows;
      rows[lane] = shape.num_rows;
      tiles[lane] = shape.num_tiles;
    });
    const std::int32_t step_rows = Lanes::exclusive_sum(rows);
    const std::int32_t step_tiles = Lanes::exclusive_sum(tiles);
    Lanes::each([&](int lane) {
      const std::int32_t group = step + lane;
      if (group >= groups.end) return;
      tables.expert_row_begin[group] = row + rows[lane];
      tables.expert_tile_begin[group] = tile + tiles[lane];
    });
    row += step_rows;
    tile += step_tiles;
  }
  // The last worker's share of the groups is never empty, so it ends at the end.
  Lanes::each([&](int lane) {
    if (lane != 0 || worker != args.num_workers - 1) return;
    tables.expert_row_begin[groups.end] = row;
    tables.expert_tile_begin[groups.end] = tile;
  });
  Lanes::sync();

  for (std::int32_t group = groups.begin; group < groups.end; ++group) {
    const std::int32_t real_rows = args.scratch.group_real_rows[group];
    const std::int32_t num_rows = group_tiles(args.shape, real_rows).num_rows;
    const std::int32_t row_begin = tables.expert_row_begin[group];
    Lanes::each([&](int lane) {
      for (std::int32_t i = real_rows + lane; i < num_rows; i += Lanes::kWidth) {
        tables.row_source[row_begin + i] = -1;
        args.scratch.row_flags[row_begin + i] = 0;
      }
    });
  }
}

template <class Lanes>
SLIPSTREAM_HD void assign_slots(const BuilderArgs& args, std::int32_t worker) {
  using Int32 = typename Lanes::template Value<std::int32_t>;
  const OwnerRanges owners(args);
  std::int32_t* const rows = args.scratch.worker_rows + worker;
  const std::int64_t stride = args.num_workers;
  const Range tokens = share_of(owners.num_tokens(), worker, args.num_workers);
  const std::int32_t pair_end = tokens.end * args.shape.topk;
  for (std::int32_t step = tokens.begin * args.shape.topk; step < pair_end; step += Lanes::kWidth) {
    typename Lanes::template Value<Pair> pairs;
    Int32 group;
    Int32 before;
    Lanes::each([&](int lane) {
      group[lane] = -1;
      before[lane] = 0;
      if (step + lane >= pair_end) return;
      pairs[lane] = load_pair(args, owners, step + lane);
      group[lane] = pairs[lane].group;
      if (group[lane] >= 0) {
        before[lane] = rows[group[lane] * stride];
      } else {
        args.tables.slots[pairs[lane].index] = -1;
        args.tables.slot_tile[pairs[lane].index] = -1;
      }
    });
    Lanes::sync();
    const auto equal = Lanes::match(group);
    Lanes::each([&](int lane) {
      if (group[lane] < 0) return;
      write_pair(args, pairs[lane], before[lane] + equal[lane].rank);
      if (equal[lane].rank == equal[lane].count - 1)
        rows[group[lane] * stride] = before[lane] + equal[lane].count;
    });
    Lanes::sync();
  }

  Int32 owner_tokens[kMaxRanks];
  Lanes::each([&](int lane) {
    for (int rank = 0; rank < kMaxRanks; ++rank) owner_tokens[rank][lane] = 0;
    for (std::int32_t i = tokens.begin + lane; i < tokens.end; i += Lanes::kWidth) {
      const std::int32_t token = rotate(i, owners.first_token(args.shape), owners.num_tokens());
      if (!flag_token(args, token)) continue;
      const std::int32_t owner = owners.owner_of(token);
      for (int rank = 0; rank < kMaxRanks; ++rank)
        owner_tokens[rank][lane] += rank == owner ? 1 : 0;
    }
  });
  for (int rank = 0; rank < kMaxRanks; ++rank) {
    const std::int32_t num_tokens = Lanes::sum(owner_tokens[rank]);
    Lanes::each([&](int lane) {
      if (lane != 0 || rank >= args.shape.num_ranks) return;
      args.scratch.worker_owner_tokens[worker * args.shape.num_ranks + rank] = num_tokens;
    });
  }
}

template <class Lanes>
SLIPSTREAM_HD void count_flags(const BuilderArgs& args, std::int32_t worker) {
  using Int32 = typename Lanes::template Value<std::int32_t>;
  Int32 num_smallest;
  Int32 num_largest;
  const std::int32_t num_rows = args.tables.expert_row_begin[args.shape.num_groups()];
  const Range rows = share_of(num_rows, worker, args.num_workers);
  Lanes::each([&](int lane) {
    num_smallest[lane] = 0;
    num_largest[lane] = 0;
    for (std::int32_t row = rows.begin + lane; row < rows.end; row += Lanes::kWidth) {
      num_smallest[lane] += (args.scratch.row_flags[row] & kSmallestSlot) != 0 ? 1 : 0;
      num_largest[lane] += (args.scratch.row_flags[row] & kLargestSlot) != 0 ? 1 : 0;
    }
  });
  const std::int32_t all_smallest = Lanes::sum(num_smallest);
  const std::int32_t all_largest = Lanes::sum(num_largest);
  Lanes::each([&](int lane) {
    if (lane != 0) return;
    args.scratch.worker_totals[worker].num_smallest = all_smallest;
    args.scratch.worker_totals[worker].num_largest = all_largest;
  });

  // Owners are dealt out to workers.
  const std::int32_t num_ranks = args.shape.num_ranks;
  for (std::int32_t owner = worker; owner < num_ranks; owner += args.num_workers) {
    Int32 tokens;
    Lanes::each([&](int lane) {
      tokens[lane] = 0;
      for (std::int32_t other = lane; other < args.num_workers; other += Lanes::kWidth)
        tokens[lane] += args.scratch.worker_owner_tokens[other * num_ranks + owner];
    });
    const std::int32_t all_tokens = Lanes::sum(tokens);
    Lanes::each([&](int lane) {
      if (lane == 0) args.scratch.owner_tokens[owner] = all_tokens;
    });
  }
}

// Worker 0's extra part of write_orders.
template <class Lanes>
SLIPSTREAM_HD void write_counts(const BuilderArgs& args, std::int32_t num_null_jobs) {
  const OwnerRanges owners(args);
  const ScheduleShape& shape = args.shape;
  const Range all{0, args.num_workers};
  ScheduleCounts counts{};
  counts.num_tokens = owners.num_tokens();
  counts.num_real_rows = sum_over_workers<Lanes>(
      args, all, [](const WorkerTotals& totals) { return totals.num_real_rows; });
  counts.num_rows = args.tables.expert_row_begin[shape.num_groups()];
  counts.num_tiles = args.tables.expert_tile_begin[shape.num_groups()];
  counts.num_pull_tokens = sum_over_workers<Lanes>(
      args, all, [](const WorkerTotals& totals) { return totals.num_smallest; });
  counts.num_jobs = counts.num_pull_tokens + num_null_jobs;
  counts.num_invalid_ids = sum_over_workers<Lanes>(
      args, all, [](const WorkerTotals& totals) { return totals.num_invalid_ids; });

  typename Lanes::template Value<std::uint32_t> first_invalid;
  typename Lanes::template Value<std::int32_t> tile_rows;
  Lanes::each([&](int lane) {
    first_invalid[lane] = 0xffffffffU;
    tile_rows[lane] = 0;
    for (std::int32_t worker = lane; worker < args.num_workers; worker += Lanes::kWidth) {
      const WorkerTotals& totals = args.scratch.worker_totals[worker];
      if (totals.first_invalid_pair < first_invalid[lane])
        first_invalid[lane] = totals.first_invalid_pair;
      if (totals.max_tile_rows > tile_rows[lane]) tile_rows[lane] = totals.max_tile_rows;
    }
  });
  // All ones, none found, becomes -1.
  counts.first_invalid_pair = static_cast<std::int32_t>(Lanes::min(first_invalid));
  counts.max_tile_rows = Lanes::max(tile_rows);

  Lanes::each([&](int lane) {
    if (lane != 0) return;
    *args.tables.counts = counts;
    std::int32_t null_job = 0;
    for (int owner = 0; owner < kMaxRanks; ++owner) {
      if (owner >= shape.num_ranks) break;
      const std::int32_t tokens = args.scratch.owner_tokens[owner];
      args.tables.owner_token_begin[owner] = owners.begin[owner];
      args.tables.owner_num_jobs[owner] = tokens > 0 ? tokens : 1;
      if (tokens == 0) args.tables.job_order[null_job++] = -1 - owner;
    }
    args.tables.owner_token_begin[shape.num_ranks] = owners.num_tokens();
  });
}

template <class Lanes>
SLIPSTREAM_HD void write_orders(const BuilderArgs& args, std::int32_t worker) {
  using Int32 = typename Lanes::template Value<std::int32_t>;
  std::int32_t num_null_jobs = 0;
  for (std::int32_t owner = 0; owner < args.shape.num_ranks; ++owner)
    num_null_jobs += args.scratch.owner_tokens[owner] == 0 ? 1 : 0;
  if (worker == 0) write_counts<Lanes>(args, num_null_jobs);

  const Range earlier{0, worker};
  std::int32_t pull = sum_over_workers<Lanes>(
      args, earlier, [](const WorkerTotals& totals) { return totals.num_smallest; });
  std::int32_t job =
      num_null_jobs + sum_over_workers<Lanes>(args, earlier, [](const WorkerTotals& totals) {
        return totals.num_largest;
      });
  const std::int32_t num_rows = args.tables.expert_row_begin[args.shape.num_groups()];
  const Range rows = share_of(num_rows, worker, args.num_workers);
  for (std::int32_t step = rows.begin; step < rows.end; step += Lanes::kWidth) {
    // Both flags in one scan: a step has at most 32 of each.
    Int32 flags;
    Int32 sums;
    Lanes::each([&](int lane) {
      flags[lane] = step + lane < rows.end ? args.scratch.row_flags[step + lane] : 0;
      sums[lane] = ((flags[lane] & kSmallestSlot) != 0 ? 1 : 0) +
                   ((flags[lane] & kLargestSlot) != 0 ? 0x10000 : 0);
    });
    const std::int32_t step_sums = Lanes::exclusive_sum(sums);
    Lanes::each([&](int lane) {
      if (flags[lane] == 0) return;
      const std::int32_t token = args.tables.row_source[step + lane] / args.shape.topk;
      if ((flags[lane] & kSmallestSlot) != 0)
        args.tables.pull_order[pull + (sums[lane] & 0xffff)] = token;
      if ((flags[lane] & kLargestSlot) != 0)
        args.tables.job_order[job + (sums[lane] >> 16)] = token;
    });
    pull += step_sums & 0xffff;
    job += step_sums >> 16;
  }
}

}  // namespace slipstream::builder
