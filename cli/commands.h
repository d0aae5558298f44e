// The commands. Each returns the exit code, or a Status that main.cc prints as an error.
#pragma once

#include "options.h"
#include "slipstream/status.h"

namespace slipstream::cli {

Result<int> cmd_info(const OptionValues& options);
Result<int> cmd_plan(const OptionValues& options);
Result<int> cmd_run(const OptionValues& options);
Result<int> cmd_verify(const OptionValues& options);
Result<int> cmd_bench(const OptionValues& options);
Result<int> cmd_faults(const OptionValues& options);

}  // namespace slipstream::cli
