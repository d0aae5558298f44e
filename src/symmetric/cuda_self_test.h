// Pattern self-test of symmetric memory: peer-to-peer can corrupt silently (an IOMMU or ACS
// setting, a broken bridge), so every region is tested when it is made. Called by every provider.
#pragma once

#include <span>

#include "launch/exchange.h"
#include "slipstream/status.h"
#include "symmetric/cuda_region.h"

namespace slipstream {

// The ways in which kernels move data between ranks.
enum class TransferMethod { kStoreLoad = 0, kBulkCopy = 1 };

// Every rank writes a pattern of its own into its share of every rank's whole region, by plain
// stores and by bulk copies; the owner checks all it received; the writer reads back what it wrote.
// Patterns depend on writer, owner, method and offset, so misplaced data is found, too. Leaves
// regions zeroed.
//
// `regions` are those of the ranks that this thread speaks for: all of them, and then `exchange` is
// not needed, or one. Collective over the exchange; the tags "self-test: ..." mark its phases.
// Errors: kBackendError with the pair, the offset in the region and both values, on every rank.
Status self_test(std::span<const CudaRegion> regions, const Exchange* exchange);

}  // namespace slipstream
