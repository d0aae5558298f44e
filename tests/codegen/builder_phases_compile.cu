// The table builder's phases compiled as device code: one cluster, a warp per worker, a cluster
// barrier between phases. A stand-in for the launcher of the GPU builder, never run.
#include <cooperative_groups.h>

#include "schedule/builder_phases.h"

namespace slipstream {

__global__ void __launch_bounds__(512) build_schedule(const __grid_constant__ BuilderArgs args) {
  const auto cluster = cooperative_groups::this_cluster();
  const int worker = static_cast<int>(cluster.thread_rank() / WarpLanes::kWidth);
  builder::count_groups<WarpLanes>(args, worker);
  cluster.sync();
  builder::scan_workers<WarpLanes>(args, worker);
  cluster.sync();
  builder::place_groups<WarpLanes>(args, worker);
  cluster.sync();
  builder::assign_slots<WarpLanes>(args, worker);
  cluster.sync();
  builder::count_flags<WarpLanes>(args, worker);
  cluster.sync();
  builder::write_orders<WarpLanes>(args, worker);
}

}  // namespace slipstream
