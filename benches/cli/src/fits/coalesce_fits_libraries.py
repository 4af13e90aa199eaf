"""Device memory that CUDA and its libraries take, as the simulated CUDA counts it."""

import ctypes

# In the order of allocator/simcuda/include/fakecuda.h.
NAMES = ("context", "kernels", "streams", "CUDA graphs", "cuBLAS", "cuDNN", "NCCL", "others")


def in_use():
    """What is in use on the device at its peak."""
    cuda = ctypes.CDLL("libcuda.so.1")
    for read in (cuda.fakecuda_peak_with_libraries, cuda.fakecuda_taken):
        read.restype = ctypes.c_uint64
    taken = ((name, cuda.fakecuda_taken(part)) for part, name in enumerate(NAMES))
    libraries = [{"name": name, "bytes": taken} for name, taken in taken if taken]
    return {"peak_bytes": cuda.fakecuda_peak_with_libraries(), "libraries": libraries}
