// What a job will allocate, told before it does. Used by `plan`, and by `run` to refuse in time.
#pragma once

#include <cstdint>

#include "job.h"
#include "slipstream/status.h"

namespace slipstream::cli {

// Bytes over all ranks, on the host backend. Upper bounds where routing decides.
struct MemoryNeed {
  std::int64_t weights = 0;            // slices, in the layer's dtype
  std::int64_t converted_weights = 0;  // the host backend's fp32 copies of 16-bit weights
  std::int64_t tokens = 0;             // inputs and outputs
  std::int64_t symmetric = 0;          // Workspace::symmetric_bytes of every rank
  std::int64_t local = 0;              // rows between the two GEMMs
  std::int64_t tables = 0;             // routing and schedules, one of every rank
  std::int64_t check = 0;              // the fp64 reference

  std::int64_t total() const {
    return weights + converted_weights + tokens + symmetric + local + tables + check;
  }
};

MemoryNeed memory_need(const Job& job, bool with_check);

// Errors: kOutOfMemory with what is needed and what there is. `what_for` ends the sentence's first
// words: "memory for ...".
Status check_memory(std::int64_t needed_bytes, const char* what_for);

}  // namespace slipstream::cli
