// librmm.so carries a CUDA runtime of its own, which wants NVIDIA's driver and a device. The entry
// points of it that the pool, the arena and the bins call are replaced by jumps to the functions of
// these names in the process: those of runtime.cpp, or of the simulated CUDA. The memory resources
// themselves stay as they were shipped.
#include "redirect.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <rmm/cuda_device.hpp>

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
