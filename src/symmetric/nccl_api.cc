// Finds NCCL's functions at run time.
#include "symmetric/nccl_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

namespace slipstream {

namespace {

constexpr const char* kLibrary = "libnccl.so.2";

struct Loaded {
  NcclApi api;
  Status status;
};

Status unsupported(std::string observed) {
  return Status(StatusCode::kUnsupported, Subsystem::kSymmetric,
                {.what = "NCCL",
                 .observed = std::move(observed),
                 .expected = fmt::format("{}, 2.12 or newer", kLibrary),
                 .hint = "name the file in SLIPSTREAM_NCCL, or use the threads launcher"});
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

Loaded load() {
  Loaded loaded;
  const char* named = std::getenv("SLIPSTREAM_NCCL");
  void* library = nullptr;
  if (named == nullptr) library = dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen(named == nullptr ? kLibrary : named, RTLD_NOW);
  if (library == nullptr) {
    loaded.status = unsupported(fmt::format("not loadable ({})", dlerror()));
    return loaded;
  }
  NcclApi& api = loaded.api;
  decltype(&::ncclGetVersion) get_version = nullptr;
  find(library, "ncclGetVersion", get_version);
  find(library, "ncclGetErrorString", api.GetErrorString);
  find(library, "ncclGetUniqueId", api.GetUniqueId);
  find(library, "ncclCommInitRank", api.CommInitRank);
  find(library, "ncclCommDestroy", api.CommDestroy);
  find(library, "ncclCommAbort", api.CommAbort);
  find(library, "ncclCommCount", api.CommCount);
  find(library, "ncclCommUserRank", api.CommUserRank);
  find(library, "ncclCommCuDevice", api.CommCuDevice);
  find(library, "ncclAllGather", api.AllGather);
  find(library, "ncclMemAlloc", api.MemAlloc);
  find(library, "ncclMemFree", api.MemFree);
  find(library, "ncclCommWindowRegister", api.CommWindowRegister);
  find(library, "ncclCommWindowDeregister", api.CommWindowDeregister);
  find(library, "ncclGetPeerDevicePointer", api.GetPeerDevicePointer);
  const bool is_complete = get_version && api.GetErrorString && api.GetUniqueId &&
                           api.CommInitRank && api.CommDestroy && api.CommAbort && api.CommCount &&
                           api.CommUserRank && api.CommCuDevice && api.AllGather;
  if (!is_complete || get_version(&api.version) != ncclSuccess) {
    loaded.status = unsupported("a library without the functions of NCCL");
    return loaded;
  }
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(api.CommInitRank), &info) != 0) api.path = info.dli_fname;
  return loaded;
}

}  // namespace

Result<const NcclApi*> nccl_api() {
  static const Loaded loaded = load();
  if (!loaded.status.is_ok()) return loaded.status;
  return &loaded.api;
}

Status nccl_status(const NcclApi& api, ncclResult_t result, std::string what) {
  if (result == ncclSuccess) return Status::ok();
  return Status(StatusCode::kBackendError, Subsystem::kSymmetric,
                {.what = std::move(what),
                 .observed = api.GetErrorString(result),
                 .expected = "success",
                 .hint = "NCCL_DEBUG=WARN says more"});
}

}  // namespace slipstream
