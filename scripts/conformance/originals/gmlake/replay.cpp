// Replays operations through GMLake's allocator, compiled unchanged, over the fake CUDA
// runtime.
//
// stdin: operations as in the recorded vectors, without results (`a ID BYTES STREAM`,
// `f ID`, `r ID STREAM`, `e`). stdout: the same with what GMLake answered: an address or
// `oom` behind each `a`. stderr: the most memory it held, and what it says itself. GMLake's
// settings come from its own environment variables (fragLimit, reuseLimit, defragLevel, autoGC),
// those of the device from FAKE_*.
#include <c10/core/Allocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <unordered_map>

#include "fakecuda.h"

namespace ca = c10::cuda::CUDACachingAllocator;

// What the allocator needs of the rest of c10_cuda: one device, no capture, and streams
// that are their handles.
namespace c10::cuda {
DeviceIndex device_count() noexcept { return 1; }
void warn_or_error_on_sync() {}
cudaStream_t CUDAStream::stream() const { return reinterpret_cast<cudaStream_t>(id()); }
static CUDAStream stream_of(uint64_t handle) {
  Device device(DeviceType::CUDA, 0);
  auto id = static_cast<StreamId>(handle);
  return CUDAStream(CUDAStream::UNCHECKED, Stream(Stream::UNSAFE, device, id));
}
CUDAStream getStreamFromPool(bool, DeviceIndex) { return stream_of(0); }
CUDAStream getDefaultCUDAStream(DeviceIndex) { return stream_of(0); }
CUDAStream getCurrentCUDAStream(DeviceIndex) { return stream_of(0); }
void setCurrentCUDAStream(CUDAStream) {}
void c10_cuda_check_implementation(int32_t err, const char* file, const char*, int line, bool) {
  TORCH_CHECK(err == 0, "CUDA error ", err, " at ", file, ":", line);
}
namespace CUDACachingAllocator::CudaMallocAsync {
CUDAAllocator* allocator() { return nullptr; }
}  // namespace CUDACachingAllocator::CudaMallocAsync
}  // namespace c10::cuda

extern "C" CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}

static uint64_t handle_of(uint64_t stream) { return stream * 0x1000; }

static void* allocate(uint64_t bytes, uint64_t stream) {
  try {
    auto handle = reinterpret_cast<cudaStream_t>(handle_of(stream));
    return ca::raw_alloc_with_stream(bytes, handle);
  } catch (const c10::OutOfMemoryError&) {
    return nullptr;
  }
}

static void record_stream(void* addr, uint64_t stream) {
  // Recording goes by tensors' pointers; the deleter tells whose they are.
  c10::DataPtr tensor(addr, addr, ca::get()->raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
  ca::recordStream(tensor, c10::cuda::stream_of(handle_of(stream)));
  tensor.release_context();
}

int main() {
  // GMLake prints its own messages on stdout; they go to stderr.
  FILE* answers = fdopen(dup(STDOUT_FILENO), "w");
  dup2(STDERR_FILENO, STDOUT_FILENO);
  ca::init(1);
  std::unordered_map<std::string, void*> live;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string op, id;
    uint64_t bytes = 0, stream = 0;
    words >> op;
    if (op == "a" && words >> id >> bytes >> stream) {
      void* addr = allocate(bytes, stream);
      if (addr == nullptr) {
        std::fprintf(answers, "%s oom\n", line.c_str());
      } else {
        live[id] = addr;
        std::fprintf(answers, "%s 0x%" PRIx64 "\n", line.c_str(), reinterpret_cast<uint64_t>(addr));
      }
    } else if (op == "f" && words >> id && live.count(id) != 0) {
      ca::raw_delete(live[id]);
      live.erase(id);
      std::fprintf(answers, "%s\n", line.c_str());
    } else if (op == "r" && words >> id >> stream && live.count(id) != 0) {
      record_stream(live[id], stream);
      std::fprintf(answers, "%s\n", line.c_str());
    } else if (op == "e") {
      ca::emptyCache();
      std::fprintf(answers, "%s\n", line.c_str());
    } else if (op == "f" || op == "r") {
      continue;  // of what was not allocated
    } else {
      std::fprintf(stderr, "bad operation: %s\n", line.c_str());
      return 2;
    }
    std::fflush(answers);
  }
  fakecuda_counters_t counters;
  fakecuda_counters(&counters);
  std::fprintf(stderr, "peak: %" PRIu64 " bytes of device memory\n", counters.peak_used);
  std::_Exit(0);  // the allocator's globals outlive the fake device
}
