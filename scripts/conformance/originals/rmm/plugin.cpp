// RMM's pool, arena and bins as a library for PyTorch's CUDAPluggableAllocator, over the CUDA
// functions in the process: `coalesce replay … --policy plugin:rmm-plugin.so`. See ../README.md.
//
// RMM_POLICY is the name of our policy, rmm_pool unless set; RMM_CONF are its settings.
#include <cuda_runtime_api.h>
#include <sys/types.h>

#include <rmm/error.hpp>
#include <rmm/logger.hpp>

#include "redirect.h"
#include "resources.h"

namespace {

std::string variable(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value == nullptr ? otherwise : value;
}

// A resource that preallocates takes its memory when it is first asked. It is never destroyed: at the
// end of a process RMM returns nothing either.
Resource& resource() {
  static Resource& made = *[] {
    redirect_librmm();
    rmm::default_logger().set_level(rapids_logger::level_enum::off);
    return new Resource(make(variable("RMM_POLICY", "rmm_pool"), Conf(variable("RMM_CONF", ""))));
  }();
  return made;
}

}  // namespace

extern "C" {

// Missing in the simulated CUDA.
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  *id = reinterpret_cast<uint64_t>(stream);
  return cudaSuccess;
}

void* allocate(ssize_t size, int, cudaStream_t stream) {
  try {
    return resource().allocate(cuda::stream_ref{stream}, size, 256);
  } catch (const rmm::bad_alloc&) {
    return nullptr;
  }
}

void deallocate(void* address, ssize_t size, int, cudaStream_t stream) {
  resource().deallocate(cuda::stream_ref{stream}, address, size, 256);
}

}  // extern "C"
