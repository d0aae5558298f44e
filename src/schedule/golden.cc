#include "schedule/golden.h"

#include <algorithm>
#include <tuple>

#include "schedule/tile_policy.h"
#include "slipstream/routing.h"

namespace slipstream {

namespace {

// Segment of an owner's local token t out of T.
std::int32_t segment_of(const ScheduleShape& shape, std::int32_t local_token,
                        std::int32_t num_local_tokens) {
  return static_cast<std::int32_t>(std::int64_t{local_token} * shape.num_segments /
                                   num_local_tokens);
}

// Calls visit(pair, group) for every routed pair j * K + k, in the order of RowOrder. Pairs of one
// group come in row order.
template <class Visit>
void for_each_row(const Schedule& schedule, std::span<const std::int32_t> topk_ids, Visit visit) {
  const ScheduleShape& shape = schedule.shape;
  const std::int32_t first_owner = shape.row_order == RowOrder::kLocalFirst ? shape.rank : 0;
  for (std::int32_t step = 0; step < shape.num_ranks; ++step) {
    const std::int32_t owner = (first_owner + step) % shape.num_ranks;
    const std::int32_t token_begin = schedule.owner_token_begin[owner];
    const std::int32_t token_end = schedule.owner_token_begin[owner + 1];
    for (std::int32_t token = token_begin; token < token_end; ++token) {
      const std::int32_t segment = segment_of(shape, token - token_begin, token_end - token_begin);
      for (std::int32_t k = 0; k < shape.topk; ++k) {
        const std::int32_t pair = token * shape.topk + k;
        const std::int32_t expert = topk_ids[pair];
        if (is_routed(expert, shape.num_experts)) visit(pair, segment * shape.num_experts + expert);
      }
    }
  }
}

void count_invalid_ids(std::span<const std::int32_t> topk_ids, Schedule& schedule) {
  schedule.counts.num_invalid_ids = 0;
  schedule.counts.first_invalid_pair = -1;
  for (std::size_t pair = 0; pair < topk_ids.size(); ++pair) {
    if (!is_invalid_id(topk_ids[pair], schedule.shape.num_experts)) continue;
    if (schedule.counts.num_invalid_ids == 0)
      schedule.counts.first_invalid_pair = static_cast<std::int32_t>(pair);
    ++schedule.counts.num_invalid_ids;
  }
}

// Appends one group's tiles. Real rows come first, padding fills up the last tile.
void append_group(std::int32_t group, std::int32_t num_real_rows, Schedule& schedule) {
  const GroupTiles tiles = group_tiles(schedule.shape, num_real_rows);
  const std::int32_t group_begin = schedule.expert_row_begin.back();
  for (std::int32_t t = 0; t < tiles.num_tiles; ++t) {
    const std::int32_t begin = t * tiles.tile_rows;
    const std::int32_t real_end = std::min(begin + tiles.tile_rows, num_real_rows);
    const std::int32_t end = std::min(begin + tiles.tile_rows, tiles.num_rows);
    schedule.token_tile.push_back(TokenTile{.expert = group % schedule.shape.num_experts,
                                            .row_begin = group_begin + begin,
                                            .num_rows = real_end - begin});
    schedule.slack.push_back(end - real_end);
    schedule.counts.max_tile_rows = std::max(schedule.counts.max_tile_rows, end - begin);
  }
  schedule.expert_row_begin.push_back(group_begin + tiles.num_rows);
  schedule.expert_tile_begin.push_back(static_cast<std::int32_t>(schedule.token_tile.size()));
  schedule.counts.num_real_rows += num_real_rows;
}

// Every pair takes the next free row of its group, and moves to the group's next tile when it is
// past the last row of this one.
void place_rows(std::span<const std::int32_t> topk_ids, Schedule& schedule) {
  schedule.slots.assign(topk_ids.size(), -1);
  schedule.slot_tile.assign(topk_ids.size(), -1);
  schedule.row_source.assign(schedule.expert_row_begin.back(), -1);
  std::vector<std::int32_t> next_row = schedule.expert_row_begin;
  std::vector<std::int32_t> tile_of_group = schedule.expert_tile_begin;
  for_each_row(schedule, topk_ids, [&](std::int32_t pair, std::int32_t group) {
    const std::int32_t row = next_row[group]++;
    const TokenTile& tile = schedule.token_tile[tile_of_group[group]];
    if (row >= tile.row_begin + tile.num_rows) ++tile_of_group[group];
    schedule.slots[pair] = row;
    schedule.slot_tile[pair] = tile_of_group[group];
    schedule.row_source[row] = pair;
  });
}

// A token's smallest slot is where a walk over the rows first meets it, its largest slot is where a
// walk backwards does.
void order_tokens_and_jobs(Schedule& schedule) {
  const std::int32_t topk = schedule.shape.topk;
  std::vector<bool> seen(schedule.counts.num_tokens, false);
  schedule.pull_order.reserve(schedule.counts.num_tokens);
  schedule.job_order.reserve(schedule.counts.num_tokens + schedule.shape.num_ranks);
  for (const std::int32_t pair : schedule.row_source) {
    if (pair < 0 || seen[pair / topk]) continue;
    seen[pair / topk] = true;
    schedule.pull_order.push_back(pair / topk);
  }

  schedule.owner_num_jobs.assign(schedule.shape.num_ranks, 0);
  const ScheduleView view = schedule.view();
  for (const std::int32_t token : schedule.pull_order)
    ++schedule.owner_num_jobs[owner_of_token(view, token)];
  for (std::int32_t owner = 0; owner < schedule.shape.num_ranks; ++owner) {
    if (schedule.owner_num_jobs[owner] > 0) continue;
    schedule.owner_num_jobs[owner] = 1;
    schedule.job_order.push_back(-1 - owner);
  }

  std::vector<std::int32_t> last_first;
  last_first.reserve(schedule.pull_order.size());
  for (auto row = schedule.row_source.rbegin(); row != schedule.row_source.rend(); ++row) {
    const std::int32_t pair = *row;
    if (pair < 0 || !seen[pair / topk]) continue;
    seen[pair / topk] = false;
    last_first.push_back(pair / topk);
  }
  schedule.job_order.insert(schedule.job_order.end(), last_first.rbegin(), last_first.rend());
}

}  // namespace

Schedule build_golden(const ScheduleShape& shape, std::span<const std::int32_t> tokens_per_rank,
                      std::span<const std::int32_t> topk_ids) {
  Schedule schedule;
  schedule.shape = shape;
  schedule.owner_token_begin = {0};
  for (const std::int32_t num_tokens : tokens_per_rank)
    schedule.owner_token_begin.push_back(schedule.owner_token_begin.back() + num_tokens);
  schedule.counts.num_tokens = schedule.owner_token_begin.back();
  count_invalid_ids(topk_ids, schedule);

  std::vector<std::int32_t> group_rows(shape.num_groups(), 0);
  for_each_row(schedule, topk_ids, [&](std::int32_t, std::int32_t group) { ++group_rows[group]; });
  schedule.expert_row_begin = {0};
  schedule.expert_tile_begin = {0};
  for (std::int32_t group = 0; group < shape.num_groups(); ++group)
    append_group(group, group_rows[group], schedule);
  place_rows(topk_ids, schedule);
  order_tokens_and_jobs(schedule);

  schedule.counts.num_rows = static_cast<std::int32_t>(schedule.row_source.size());
  schedule.counts.num_tiles = static_cast<std::int32_t>(schedule.token_tile.size());
  schedule.counts.num_pull_tokens = static_cast<std::int32_t>(schedule.pull_order.size());
  schedule.counts.num_jobs = static_cast<std::int32_t>(schedule.job_order.size());
  return schedule;
}

std::vector<TileVisit> golden_tile_order(const Schedule& schedule) {
  struct Entry {
    std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t> key;
    TileVisit visit;
  };
  const ScheduleShape& shape = schedule.shape;
  std::vector<Entry> entries;
  for (std::int32_t segment = 0; segment < shape.num_segments; ++segment) {
    for (std::int32_t expert = 0; expert < shape.num_experts; ++expert) {
      const std::int32_t group = segment * shape.num_experts + expert;
      for (std::int32_t tile = schedule.expert_tile_begin[group];
           tile < schedule.expert_tile_begin[group + 1]; ++tile) {
        for (std::int32_t chunk = 0; chunk < shape.chunks.num_chunks; ++chunk) {
          const std::int32_t row_begin = schedule.token_tile[tile].row_begin;
          entries.push_back({{chunk, segment, expert, row_begin}, {chunk, tile}});
        }
      }
    }
  }
  std::ranges::sort(entries, {}, &Entry::key);
  std::vector<TileVisit> order;
  for (const Entry& entry : entries) order.push_back(entry.visit);
  return order;
}

std::vector<JobVisit> golden_job_order(const Schedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  const std::vector<TileVisit> tile_order = golden_tile_order(schedule);
  // position_of[chunk * num_tiles + tile]: when that tile's chunk is finished.
  std::vector<std::int64_t> position_of(tile_order.size());
  for (std::size_t position = 0; position < tile_order.size(); ++position) {
    const TileVisit& visit = tile_order[position];
    position_of[std::int64_t{visit.chunk} * schedule.counts.num_tiles + visit.tile] =
        static_cast<std::int64_t>(position);
  }

  struct Entry {
    std::tuple<std::int32_t, bool, std::int64_t, std::int32_t> key;
    JobVisit visit;
  };
  std::vector<Entry> entries;
  for (std::int32_t chunk = 0; chunk < shape.chunks.num_chunks; ++chunk) {
    for (std::int32_t owner = 0; owner < shape.num_ranks; ++owner) {
      bool has_rows = false;
      for (std::int32_t token = schedule.owner_token_begin[owner];
           token < schedule.owner_token_begin[owner + 1]; ++token) {
        std::int64_t last_position = -1;
        std::int32_t largest_slot = -1;
        for (std::int32_t k = 0; k < shape.topk; ++k) {
          const std::int32_t pair = token * shape.topk + k;
          if (schedule.slots[pair] < 0) continue;
          largest_slot = std::max(largest_slot, schedule.slots[pair]);
          const std::int64_t tile = schedule.slot_tile[pair];
          last_position = std::max(
              last_position, position_of[std::int64_t{chunk} * schedule.counts.num_tiles + tile]);
        }
        if (largest_slot < 0) continue;
        has_rows = true;
        entries.push_back({{chunk, true, last_position, largest_slot}, {chunk, owner, token}});
      }
      if (!has_rows) entries.push_back({{chunk, false, owner, -1}, {chunk, owner, -1}});
    }
  }
  std::ranges::sort(entries, {}, &Entry::key);
  std::vector<JobVisit> order;
  for (const Entry& entry : entries) order.push_back(entry.visit);
  return order;
}

}  // namespace slipstream
