/* cuFFT. PyTorch makes plans without a workspace of their own, and asks its allocator for what a plan says it needs. */

#include "transforms.h"

DESCRIBES(cufftGetErrorString)

/* A plan is a number. Nothing is kept under it. */
int cufftCreate(int *plan) {
  *plan = 1;
  return 0;
}

/* cudaDataType of library_types.h: real numbers, and complex ones 4 above. */
enum { REAL_FLOAT = 0, REAL_DOUBLE = 1, REAL_HALF = 2, COMPLEX = 4 };

static int is_real(int type) { return type < COMPLEX; }

static int64_t bytes_of_real(int type) {
  int64_t bytes[] = {[REAL_FLOAT] = 4, [REAL_DOUBLE] = 8, [REAL_HALF] = 2};
  return type % COMPLEX <= REAL_HALF ? bytes[type % COMPLEX] : 2;
}

int cufftXtMakePlanMany(int plan, int rank, const long long *sizes, const long long *in, long long in_stride,
                        long long in_distance, int in_type, const long long *out, long long out_stride,
                        long long out_distance, int out_type, long long batch, size_t *bytes, int execution_type) {
  struct transform transform = {
      .rank = rank,
      .is_real = is_real(in_type) || is_real(out_type),
      .batch = batch,
      .bytes = bytes_of_real(in_type),
  };
  for (int i = 0; i < rank && i < MOST_DIMENSIONS; i++) transform.sizes[i] = sizes[i];
  *bytes = end_of(workspace(&transform));
  return 0;
}
