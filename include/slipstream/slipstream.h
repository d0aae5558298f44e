// Start here. Slipstream runs a tensor-parallel MoE layer with its communication hidden behind the
// arithmetic. Read in this order:
//
//   problem.h    the shape of the layer          routing.h   which tokens go where
//   tuning.h     what changes speed only         schedule.h  the tables that drive everything
//   layer.h      create, run, reset              status.h    what went wrong and what to do
#pragma once

#include "slipstream/layer.h"     // IWYU pragma: export
#include "slipstream/problem.h"   // IWYU pragma: export
#include "slipstream/routing.h"   // IWYU pragma: export
#include "slipstream/schedule.h"  // IWYU pragma: export
#include "slipstream/status.h"    // IWYU pragma: export
#include "slipstream/tensor.h"    // IWYU pragma: export
#include "slipstream/tuning.h"    // IWYU pragma: export
