// librmm.so carries a CUDA runtime of its own, which wants NVIDIA's driver and a device. The entry
// points of it that the pool, the arena and the bins call are replaced, when the program starts, by
// jumps to the functions here; the memory resources themselves stay as they were shipped.
//
// Memory is placed as the simulated device of the repository places it: sizes are rounded up to
// 2 MiB, addresses grow from 0x20000000000 and are never used twice. Work is done at once, so
// waiting and recording do nothing. The handles of events grow in the order in which they are
// created: RMM looks through the lists of other streams in the order of these handles.
#include "runtime.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <rmm/cuda_device.hpp>
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

namespace {

struct EntryPoint {
  uint64_t offset;  // in librmm.so
  void* replacement;
};

template <typename Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

// Of librmm.so in the wheel librmm-cu13 26.10.0 for x86-64, whose SHA-256 the Makefile checks. The
// library names none of them; each is the target of a call whose place in the headers is known.
const EntryPoint kEntryPoints[] = {
    {0xa3110, address_of(cudaDeviceSynchronize)},
    {0xa57c0, address_of(cudaGetLastError)},
    {0xa5b00, address_of(cudaGetErrorString)},
    {0xa5c90, address_of(cudaGetErrorName)},
    {0xa7910, address_of(cudaGetDevice)},
    {0xab670, address_of(cudaEventCreateWithFlags)},
    {0xabe70, address_of(cudaEventSynchronize)},
    {0xac050, address_of(cudaEventDestroy)},
    {0xafd70, address_of(cudaMalloc)},
    {0xb0660, address_of(cudaFree)},
    {0xb2960, address_of(cudaMemGetInfo)},
    {0xd5f90, address_of(cudaStreamGetId)},
    {0xd63b0, address_of(cudaEventRecord)},
    {0xd67d0, address_of(cudaStreamWaitEvent)},
    {0xd6e30, address_of(cudaStreamSynchronize)},
};

// movabs rax, target; jmp rax
void write_jump(unsigned char* place, void* target) {
  const uint64_t page = sysconf(_SC_PAGESIZE);
  auto start = reinterpret_cast<uint64_t>(place) / page * page;
  auto* pages = reinterpret_cast<void*>(start);
  if (mprotect(pages, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
    perror("mprotect");
    exit(2);
  }
  const unsigned char jump[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
  memcpy(place, jump, sizeof jump);
  memcpy(place + 2, &target, sizeof target);
}

}  // namespace

void redirect_librmm() {
  Dl_info library;
  if (!dladdr(address_of(rmm::available_device_memory), &library)) exit(2);
  for (const EntryPoint& entry : kEntryPoints)
    write_jump(static_cast<unsigned char*>(library.dli_fbase) + entry.offset, entry.replacement);
}
