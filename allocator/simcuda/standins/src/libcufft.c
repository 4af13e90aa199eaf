/* cuFFT. PyTorch makes plans without a workspace of their own, and asks its allocator for what a plan says it needs. */

#include "transforms.h"

/* cufftResult */
#define INVALID_VALUE 4

/* A plan is a number. Nothing is kept under it. */
int cufftCreate(int *plan) {
  static int once;
  /* Measured on an H100 with CUDA 13.0. */
  if (!once++) fakecuda_take(FAKECUDA_OTHERS, 8 * MIB);
  *plan = 1;
  return 0;
}

/* cudaDataType of library_types.h: float, double and half are 0, 1 and 2, and complex ones 4 above. */
#define COMPLEX 4

static int is_real(int type) { return type < COMPLEX; }

static int64_t bytes_of_real(int type) {
  int64_t bytes[COMPLEX] = {4, 8, 2, 1};
  return bytes[type % COMPLEX];
}

int cufftXtMakePlanMany(int plan, int rank, const long long *sizes, const long long *in, long long in_stride,
                        long long in_distance, int in_type, const long long *out, long long out_stride,
                        long long out_distance, int out_type, long long batch, size_t *bytes, int execution_type) {
  if (rank < 1 || rank > MOST_DIMENSIONS) return INVALID_VALUE;
  struct transform transform = {
      .rank = rank,
      .is_real = is_real(in_type) || is_real(out_type),
      .batch = batch,
      .bytes = bytes_of_real(in_type),
  };
  memcpy(transform.sizes, sizes, rank * sizeof *sizes);
  *bytes = end_of(workspace(&transform));
  return 0;
}
