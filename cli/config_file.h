// --config FILE: TOML with the options' names, flat. Called by main.cc after the command line.
#pragma once

#include <string>

#include "options.h"
#include "slipstream/status.h"

namespace slipstream::cli {

// Sets what the command line left open. Options of other commands are accepted and ignored, so that
// one file serves `plan` and `run`; names that no command has are errors with the nearest name.
Status read_config_file(const std::string& path, OptionValues* values);

}  // namespace slipstream::cli
