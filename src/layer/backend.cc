// Backends by name, and which of them can be had.
#include <fmt/format.h>

#include "layer/impl.h"

namespace slipstream {

std::string_view to_string(Backend backend) {
  switch (backend) {
    case Backend::kAuto: return "auto";
    case Backend::kHost: return "host";
    case Backend::kCuda: return "cuda";
  }
  return "unknown";
}

Result<Backend> parse_backend(std::string_view text) {
  for (const Backend backend : {Backend::kAuto, Backend::kHost, Backend::kCuda})
    if (text == to_string(backend)) return backend;
  return invalid_argument(Subsystem::kLayer, {.what = "backend",
                                              .observed = fmt::format("'{}'", text),
                                              .expected = "auto, host or cuda",
                                              .hint = {}});
}

Result<Backend> resolve_backend(Backend backend) {
  if (backend == Backend::kAuto || backend == Backend::kHost) return Backend::kHost;
  return Status(StatusCode::kUnsupported, Subsystem::kLayer,
                {.what = "backend",
                 .observed = std::string(to_string(backend)),
                 .expected = "host: this build has no CUDA kernels",
                 .hint = "use backend host or auto"});
}

}  // namespace slipstream
