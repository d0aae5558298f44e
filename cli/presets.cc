#include "presets.h"

#include <fmt/format.h>

namespace slipstream::cli {

namespace {

// Sources: `config.json` of the named repository on the models' hub. Field names differ: experts is
// num_local_experts, num_experts or n_routed_experts; intermediate is intermediate_size or, where
// the model has dense layers too, moe_intermediate_size; topk is num_experts_per_tok or
// experts_per_token. Only the shape is the model's: shared experts, biases (gpt-oss), clamped
// activations and routers are not part of the layer. Ranks and tokens are ours.
constexpr Preset kPresets[] = {
    {"seed", "the published two-kernel TP layer this project started from", 4, 512, 64, 4096, 3072,
     8},
    {"demo", "no model: seconds on two cores", 4, 64, 8, 512, 1024, 2},
    {"mixtral-8x7b", "config.json of mistralai/Mixtral-8x7B-v0.1", 4, 512, 8, 4096, 14336, 2},
    {"qwen3-30b-a3b", "config.json of Qwen/Qwen3-30B-A3B", 4, 512, 128, 2048, 768, 8},
    {"qwen3-235b-a22b", "config.json of Qwen/Qwen3-235B-A22B", 4, 512, 128, 4096, 1536, 8},
    {"deepseek-v3", "config.json of deepseek-ai/DeepSeek-V3", 8, 512, 256, 7168, 2048, 8},
    {"gpt-oss-120b", "config.json of openai/gpt-oss-120b", 4, 512, 128, 2880, 2880, 4},
    {"olmoe-1b-7b", "config.json of allenai/OLMoE-1B-7B-0924", 4, 512, 64, 2048, 1024, 8},
};

}  // namespace

std::span<const Preset> presets() { return kPresets; }

const Preset* find_preset(std::string_view name) {
  for (const Preset& preset : kPresets)
    if (preset.name == name) return &preset;
  return nullptr;
}

std::string preset_names() {
  std::string names;
  for (const Preset& preset : kPresets)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", preset.name);
  return names;
}

std::string describe_presets() {
  std::string text = fmt::format("  {:<16}{:>3}{:>6}{:>5}{:>6}{:>7}{:>4}  source of the shape\n",
                                 "preset", "W", "T", "E", "H", "I_full", "K");
  for (const Preset& p : kPresets) {
    text += fmt::format("  {:<16}{:>3}{:>6}{:>5}{:>6}{:>7}{:>4}  {}\n", p.name, p.ranks, p.tokens,
                        p.experts, p.hidden, p.intermediate, p.topk, p.source);
  }
  return text;
}

}  // namespace slipstream::cli
