// Sharing memory between processes.
//
// A handle has PyTorch's form: a byte with its version, 'c' for memory of cudaMalloc, and CUDA's handle. So it can be
// exchanged with processes that use PyTorch's own allocator. The form of 'c' is the same in all versions; processes with an
// old PyTorch send CUDA's handle alone.
#pragma once

#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>

#include "torch.h"

namespace coalesce {

class SharedMemory {
 public:
  // Returns the handle of a segment.
  static std::string handle_of(void* segment) {
    cudaIpcMemHandle_t handle;
    C10_CUDA_CHECK(cudaIpcGetMemHandle(&handle, segment));
    std::string text{kFormat, kCudaMalloc};
    return text.append(reinterpret_cast<const char*>(&handle), sizeof handle);
  }

  // Opens a segment of another process. CUDA can open it only once in a process, so it is kept while it is used.
  std::shared_ptr<void> open(const std::string& handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = open_.find(handle);
    if (known != open_.end()) {
      if (auto segment = known->second.lock()) return segment;
    }
    const cudaIpcMemHandle_t of_cuda = parse(handle);
    void* address = nullptr;
    C10_CUDA_CHECK(cudaIpcOpenMemHandle(&address, of_cuda, cudaIpcMemLazyEnablePeerAccess));
    const auto device = c10::cuda::current_device();
    std::shared_ptr<void> segment(address, [this, handle, device](void* address) {
      std::lock_guard<std::mutex> lock(mutex_);
      c10::cuda::CUDAGuard guard(device);
      open_.erase(handle);
      C10_CUDA_CHECK(cudaIpcCloseMemHandle(address));
    });
    open_[handle] = segment;
    return segment;
  }

 private:
  static constexpr char kFormat = 1;
  static constexpr char kNewestFormat = 3;
  static constexpr char kCudaMalloc = 'c';

  static cudaIpcMemHandle_t parse(const std::string& handle) {
    size_t start = 0;
    if (handle.size() != CUDA_IPC_HANDLE_SIZE) {
      TORCH_CHECK(handle.size() > 2 && handle[0] <= kNewestFormat,
                  "this handle of shared memory is of a newer PyTorch than Coalesce knows");
      TORCH_CHECK(handle[1] == kCudaMalloc,
                  "Coalesce cannot open memory of expandable segments of another process: set "
                  "expandable_segments:False in the process that shares it");
      start = 2;
    }
    TORCH_CHECK(handle.size() == start + CUDA_IPC_HANDLE_SIZE, "this handle of shared memory is not complete");
    cudaIpcMemHandle_t result;
    std::memcpy(&result, handle.data() + start, sizeof result);
    return result;
  }

  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<void>> open_;
};

}  // namespace coalesce
