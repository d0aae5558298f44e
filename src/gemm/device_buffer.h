// An owning array in device memory, for tests and benchmarks. Any CUDA error ends the program with
// its place: there is nothing sensible to measure or to check after one.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace slipstream {

inline void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t size) : size_(size) {
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&data_), size * sizeof(T) + 1), "cudaMalloc");
  }
  explicit DeviceBuffer(const std::vector<T>& host) : DeviceBuffer(host.size()) { upload(host); }
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceBuffer() { cudaFree(data_); }

  T* get() const { return data_; }
  std::size_t size() const { return size_; }

  void upload(const std::vector<T>& host) {
    check_cuda(cudaMemcpy(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice),
               "upload");
  }
  std::vector<T> download() const {
    std::vector<T> host(size_);
    check_cuda(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost),
               "download");
    return host;
  }
  void fill_bytes(int byte) {
    check_cuda(cudaMemset(data_, byte, size_ * sizeof(T)), "cudaMemset");
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace slipstream
