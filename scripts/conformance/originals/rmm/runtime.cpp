// The CUDA runtime below the driver: a device of which only the addresses exist.
//
// Memory is placed as the simulated device of the repository places it: sizes are rounded up to
// 2 MiB, addresses grow from 0x20000000000 and are never used twice. Work is done at once, so
// waiting and recording do nothing. The handles of events grow in the order in which they are
// created: RMM looks through the lists of other streams in the order of these handles.
#include "runtime.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <unordered_map>

namespace {

constexpr uint64_t kGranularity = 2 << 20;
constexpr uint64_t kFirstAddress = 0x20000000000;

struct Device {
  uint64_t capacity = 0;
  uint64_t used = 0;
  uint64_t next_address = kFirstAddress;
  uint64_t next_event = 1;
  std::unordered_map<uint64_t, uint64_t> allocations;  // address -> bytes charged
} device;

}  // namespace

void reset_device(uint64_t capacity) {
  device = {};
  device.capacity = capacity;
}

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  uint64_t charged = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  if (charged < bytes || charged > device.capacity - device.used) return cudaErrorMemoryAllocation;
  device.used += charged;
  device.allocations[device.next_address] = charged;
  *pointer = reinterpret_cast<void*>(device.next_address);
  device.next_address += charged;
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  auto found = device.allocations.find(reinterpret_cast<uint64_t>(pointer));
  if (found == device.allocations.end()) {
    fprintf(stderr, "cudaFree of %p, which is not allocated\n", pointer);
    abort();
  }
  device.used -= found->second;
  device.allocations.erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *free_bytes = device.capacity - device.used;
  *total = device.capacity;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(device.next_event++);
  return cudaSuccess;
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  *id = reinterpret_cast<uint64_t>(stream);
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* number) {
  *number = 0;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorMemoryAllocation"; }
const char* cudaGetErrorString(cudaError_t) { return "out of memory"; }

}  // extern "C"
