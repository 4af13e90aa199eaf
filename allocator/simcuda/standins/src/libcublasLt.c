/* cublasLt: one algorithm, which needs no workspace. */

/* The bytes of a cublasLtMatmulHeuristicResult_t (CUDA 13.0). */
#define RESULT_BYTES 96

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d,
                                   void *preference, int requested, void *results, int *returned) {
  if (requested > 0 && results) memset(results, 0, RESULT_BYTES);
  if (returned) *returned = 1;
  return 0;
}

size_t cublasLtGetVersion(void) { return CUDA * 10000; }
size_t cublasLtGetCudartVersion(void) { return CUDA * 1000; }
