// The environment that torchrun gives to a rank.
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "launch/processes.h"
#include "slipstream/config.h"

namespace slipstream {

namespace {

Status read_int(const char* name, int low, int high, int& value) {
  const char* text = std::getenv(name);
  if (text == nullptr) return Status::ok();
  const char* end = text + std::strlen(text);
  int parsed = 0;
  const auto [stop, error] = std::from_chars(text, end, parsed);
  if (error == std::errc() && stop == end && parsed >= low && parsed <= high) {
    value = parsed;
    return Status::ok();
  }
  return invalid_argument(Subsystem::kLaunch,
                          {.what = fmt::format("environment variable {}", name),
                           .observed = fmt::format("'{}'", text),
                           .expected = fmt::format("a number in {}..{}", low, high),
                           .hint = "unset RANK and WORLD_SIZE to start without torchrun"});
}

}  // namespace

Result<std::optional<RankEnvironment>> rank_environment() {
  const bool has_rank = std::getenv("RANK") != nullptr;
  const bool has_size = std::getenv("WORLD_SIZE") != nullptr;
  if (!has_rank && !has_size) return std::optional<RankEnvironment>();
  if (has_rank != has_size) {
    return invalid_argument(
        Subsystem::kLaunch,
        {.what = has_rank ? "WORLD_SIZE" : "RANK",
         .observed = "not set",
         .expected = fmt::format("set, as {} is", has_rank ? "RANK" : "WORLD_SIZE"),
         .hint = "set both, or neither"});
  }
  RankEnvironment env;
  int port = env.master_port;
  if (Status s = read_int("WORLD_SIZE", 1, kMaxRanks, env.num_ranks); !s.is_ok()) return s;
  if (Status s = read_int("RANK", 0, env.num_ranks - 1, env.rank); !s.is_ok()) return s;
  env.local_rank = env.rank;
  if (Status s = read_int("LOCAL_RANK", 0, env.num_ranks - 1, env.local_rank); !s.is_ok()) return s;
  if (Status s = read_int("MASTER_PORT", 1, 65535, port); !s.is_ok()) return s;
  env.master_port = static_cast<std::uint16_t>(port);
  if (const char* address = std::getenv("MASTER_ADDR")) env.master_addr = address;
  return std::optional<RankEnvironment>(env);
}

}  // namespace slipstream
