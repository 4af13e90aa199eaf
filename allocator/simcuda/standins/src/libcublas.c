/* cuBLAS: products of matrices succeed and compute nothing. PyTorch gives cuBLAS its workspace, so no memory is missing.
   What a handle takes beside it was measured on H100s with cuBLAS 13.1. PyTorch makes one for each thread that computes. */

int cublasCreate_v2(void **handle) {
  static int once;
  take_code(FAKECUDA_CUBLAS, 65 * MIB, once++ ? 65 * MIB : 482 * MIB);
  *handle = calloc(1, 256);
  return 0;
}

int cublasGetVersion_v2(void *handle, int *version) {
  *version = CUDA * 10000;
  return 0;
}

int cublasGetPointerMode_v2(void *handle, int *mode) {
  *mode = 0;
  return 0;
}

int cublasGetMathMode(void *handle, int *mode) {
  *mode = 0;
  return 0;
}

DESCRIBES(cublasGetStatusString)
DESCRIBES(cublasGetStatusName)
