// The one atomic word of the protocol: value, scope in the type, order at each use. All primitives
// are built on it and nothing outside protocol/ names a memory order.
//
// nvcc compiles it over cuda::atomic_ref, for the host as well as for the device. A host compiler
// takes std::atomic_ref: the same words and orders, and ThreadSanitizer understands it. There is no
// stand-alone fence anywhere: GCC 12's ThreadSanitizer does not model one. Next: tag.h.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#include <cuda/atomic>
#else
#include <atomic>
#endif

#include "slipstream/config.h"

namespace slipstream::protocol {

// Who takes part. kDevice: threads of one rank (one GPU). kSystem: other ranks and the host too.
enum class Scope { kDevice, kSystem };

#if defined(__CUDACC__)
using MemoryOrder = cuda::std::memory_order;
inline constexpr MemoryOrder kRelaxed = cuda::std::memory_order_relaxed;
inline constexpr MemoryOrder kAcquire = cuda::std::memory_order_acquire;
inline constexpr MemoryOrder kRelease = cuda::std::memory_order_release;
inline constexpr MemoryOrder kAcqRel = cuda::std::memory_order_acq_rel;
template <class T, Scope kScope>
using AtomicRef = cuda::atomic_ref<T, kScope == Scope::kDevice ? cuda::thread_scope_device
                                                               : cuda::thread_scope_system>;
#else
using MemoryOrder = std::memory_order;
inline constexpr MemoryOrder kRelaxed = std::memory_order_relaxed;
inline constexpr MemoryOrder kAcquire = std::memory_order_acquire;
inline constexpr MemoryOrder kRelease = std::memory_order_release;
inline constexpr MemoryOrder kAcqRel = std::memory_order_acq_rel;
template <class T, Scope kScope>
using AtomicRef = std::atomic_ref<T>;
#endif

// Plain data of T's size, zero when its memory is zero, so arrays of it can lie in any mapping.
template <class T, Scope kScope>
class Word {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "the GPU has atomics for these");

 public:
  SLIPSTREAM_HD T load(MemoryOrder order) const { return ref().load(order); }
  SLIPSTREAM_HD void store(T value, MemoryOrder order) { ref().store(value, order); }
  SLIPSTREAM_HD T fetch_add(T value, MemoryOrder order) { return ref().fetch_add(value, order); }
  SLIPSTREAM_HD T fetch_or(T value, MemoryOrder order) { return ref().fetch_or(value, order); }
  // On failure `expected` holds what was seen.
  SLIPSTREAM_HD bool compare_exchange(T& expected, T desired, MemoryOrder order) {
    return ref().compare_exchange_strong(expected, desired, order, kRelaxed);
  }

 private:
  // atomic_ref<const T> comes with C++26 only.
  SLIPSTREAM_HD AtomicRef<T, kScope> ref() const {
    return AtomicRef<T, kScope>(const_cast<T&>(value_));
  }

  alignas(sizeof(T)) T value_;
};

}  // namespace slipstream::protocol
