// Layer shapes by name: those of published models, the seed's and a small one for two cores.
// Used by job.cc for --preset and by the help texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace slipstream::cli {

struct Preset {
  std::string_view name;
  std::string_view source;  // where the shape is published
  std::int32_t ranks;
  std::int32_t tokens;  // per rank
  std::int32_t experts;
  std::int32_t hidden;
  std::int32_t intermediate;  // full width, over all ranks
  std::int32_t topk;
};

inline constexpr std::string_view kDefaultPreset = "demo";

std::span<const Preset> presets();
const Preset* find_preset(std::string_view name);  // null when there is none

std::string preset_names();      // "seed, demo, ..."
std::string describe_presets();  // one line each, for --help

}  // namespace slipstream::cli
