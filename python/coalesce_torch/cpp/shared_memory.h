// Sharing memory between processes.
//
// A handle has PyTorch's form: a byte with its version, 'c' for memory of cudaMalloc, and CUDA's handle; or 'e' for mapped
// pages of one size (shared_pages.h). So it can be exchanged with processes that use PyTorch's own allocator. The form of
// 'c' is the same in all versions; processes with an old PyTorch send CUDA's handle alone.
#pragma once

#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>

#include "shared_pages.h"
#include "torch.h"

namespace coalesce {

class SharedMemory {
 public:
  // Memory of another process at an address of this one.
  struct Opened {
    void* address;
    std::function<void()> close;
  };
  using OpenPages = std::function<Opened(const SharedPages&)>;

  // Returns the handle of a segment.
  static std::string handle_of(void* segment) {
    cudaIpcMemHandle_t handle;
    const cudaError_t error = cudaIpcGetMemHandle(&handle, segment);
    if (error == cudaErrorInvalidValue) {
      (void)cudaGetLastError();
      TORCH_CHECK(false,
                  "CUDA cannot share this memory with other processes, because it does not come from cudaMalloc: "
                  "use another policy in the process that shares it");
    }
    C10_CUDA_CHECK(error);
    std::string text{kFormat, kCudaMalloc};
    return text.append(reinterpret_cast<const char*>(&handle), sizeof handle);
  }

  // Opens memory of another process. CUDA can open a segment only once in a process, so it is kept while it is used.
  std::shared_ptr<void> open(const std::string& handle, const OpenPages& open_pages) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = open_.find(handle);
    if (known != open_.end()) {
      if (auto memory = known->second.lock()) return memory;
    }
    const Opened opened = open_new(handle, open_pages);
    const auto device = c10::cuda::current_device();
    std::shared_ptr<void> memory(opened.address, [this, handle, device, close = opened.close](void*) {
      std::lock_guard<std::mutex> lock(mutex_);
      c10::cuda::CUDAGuard guard(device);
      open_.erase(handle);
      close();
    });
    open_[handle] = memory;
    return memory;
  }

 private:
  static constexpr char kFormat = 1;
  static constexpr char kNewestFormat = 3;
  static constexpr char kCudaMalloc = 'c';

  static Opened open_new(const std::string& handle, const OpenPages& open_pages) {
    if (handle.size() == CUDA_IPC_HANDLE_SIZE) return open_segment(handle);
    TORCH_CHECK(handle.size() > 2 && handle[0] <= kNewestFormat,
                "this handle of shared memory is of a newer PyTorch than Coalesce knows");
    const std::string rest = handle.substr(2);
    if (handle[1] == SharedPages::kSizesMark) return open_pages(SharedPages::parse_sizes(rest));
    if (handle[1] == SharedPages::kMark) return open_pages(SharedPages::parse(handle[0], rest));
    TORCH_CHECK(handle[1] == kCudaMalloc && rest.size() == CUDA_IPC_HANDLE_SIZE,
                "this handle of shared memory is not complete");
    return open_segment(rest);
  }

  static Opened open_segment(const std::string& handle) {
    cudaIpcMemHandle_t of_cuda;
    std::memcpy(&of_cuda, handle.data(), sizeof of_cuda);
    void* address = nullptr;
    C10_CUDA_CHECK(cudaIpcOpenMemHandle(&address, of_cuda, cudaIpcMemLazyEnablePeerAccess));
    return {address, [address] { C10_CUDA_CHECK(cudaIpcCloseMemHandle(address)); }};
  }

  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<void>> open_;
};

}  // namespace coalesce
