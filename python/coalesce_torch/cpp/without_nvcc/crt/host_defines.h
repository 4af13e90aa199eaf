// For the headers of the CUDA runtime where CUDA's compiler is not installed, from which they expect this file: what
// they mark functions and types with, for a compiler that only sees host code. It is searched last.
#pragma once

#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDART_CB
#define __align__(n) __attribute__((aligned(n)))
#define __annotate__(a) __attribute__((a))
#define __builtin_align__(a) __align__(a)
#define __constant__
#define __cudart_builtin__
#define __device__
#define __device_builtin__
#define __device_builtin_surface_type__
#define __device_builtin_texture_type__
#define __forceinline__ inline
#define __global__
#define __host__
#define __location__(a)
#define __managed__
#define __shared__
#define __specialization_static
