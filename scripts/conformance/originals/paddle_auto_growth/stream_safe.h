// Paddle's layer for several streams, StreamSafeCUDAAllocator, in a program without CUDA.
//
// The wheel for CPUs has its header but not its code. STREAM_SAFE names Paddle's own
// stream_safe_cuda_allocator.cc, which is compiled here as it is, with the few things it needs of a
// build for GPUs. All work is done at once, so events are always complete.
#pragma once

#include <cstdint>
#include <iostream>

// Everything but the two files of that layer sees a build for CPUs.
#include "paddle/phi/api/profiler/event_tracing.h"
#include "paddle/phi/backends/gpu/gpu_info.h"
#include "paddle/phi/core/memory/allocation/allocator.h"
#include "paddle/phi/core/memory/mem_visitor.h"

using gpuStream_t = void*;
using gpuEvent_t = uint64_t;
enum gpuError_t { cudaSuccess, cudaErrorNotReady };
constexpr unsigned cudaEventDisableTiming = 2;

inline gpuError_t cudaEventCreateWithFlags(gpuEvent_t* event, unsigned) {
  *event = 0;
  return cudaSuccess;
}
inline gpuError_t cudaEventRecord(gpuEvent_t, gpuStream_t) { return cudaSuccess; }
inline gpuError_t cudaEventQuery(gpuEvent_t) { return cudaSuccess; }
inline gpuError_t cudaEventDestroy(gpuEvent_t) { return cudaSuccess; }

namespace phi::backends::gpu {
inline void SetDeviceId(int) {}
struct CUDAGraph {
  static bool IsThisThreadCapturing() { return false; }
};
}  // namespace phi::backends::gpu

#ifndef VLOG
#define VLOG(level) \
  if (true) {       \
  } else            \
    std::cerr
#endif
#undef PADDLE_ENFORCE_GPU_SUCCESS
#define PADDLE_ENFORCE_GPU_SUCCESS(call) static_cast<void>(call)

#define PADDLE_WITH_CUDA
#include STREAM_SAFE
#undef PADDLE_WITH_CUDA

// Declared in the header since, and nothing to do with this allocator.
size_t paddle::memory::allocation::StreamSafeCUDAAllocator::CompactImpl(const phi::Place&) {
  return 0;
}
