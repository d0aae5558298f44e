// NCCL, loaded when it is first needed: the library builds and runs without it, and says so. Its
// types stay in nccl_*.cc and out of kernels: NCCL changes them between minor versions.
//
// Used by nccl_region.cc and by the serial path. Read nccl_region.h next.
#pragma once

#include <nccl.h>

#include <string>

#include "slipstream/status.h"

namespace slipstream {

struct NcclApi {
  int version = 0;   // 22809 is 2.28.9
  std::string path;  // of the library, as it was loaded

  decltype(&::ncclGetErrorString) GetErrorString = nullptr;
  decltype(&::ncclGetUniqueId) GetUniqueId = nullptr;
  decltype(&::ncclCommInitRank) CommInitRank = nullptr;
  decltype(&::ncclCommDestroy) CommDestroy = nullptr;
  decltype(&::ncclCommAbort) CommAbort = nullptr;
  decltype(&::ncclCommCount) CommCount = nullptr;
  decltype(&::ncclCommUserRank) CommUserRank = nullptr;
  decltype(&::ncclCommCuDevice) CommCuDevice = nullptr;
  decltype(&::ncclAllGather) AllGather = nullptr;
  decltype(&::ncclMemAlloc) MemAlloc = nullptr;
  decltype(&::ncclMemFree) MemFree = nullptr;
  // Null before 2.27 and 2.28.
  decltype(&::ncclCommWindowRegister) CommWindowRegister = nullptr;
  decltype(&::ncclCommWindowDeregister) CommWindowDeregister = nullptr;
  // From 2.29 on; not in the header of 2.28.
  ncclResult_t (*GetPeerDevicePointer)(ncclWindow_t, std::size_t, int, void**) = nullptr;
};

// Loads libnccl.so.2 once: what the environment variable SLIPSTREAM_NCCL names, else what the
// process has already loaded (torch's), else what the loader finds. Errors: kUnsupported with the
// loader's words.
Result<const NcclApi*> nccl_api();

// ok, or kBackendError with NCCL's words. `what` is the call: "ncclCommInitRank".
Status nccl_status(const NcclApi& api, ncclResult_t result, std::string what);

}  // namespace slipstream
