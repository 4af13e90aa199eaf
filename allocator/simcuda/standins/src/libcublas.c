/* cuBLAS: products of matrices succeed and compute nothing. PyTorch gives cuBLAS its workspace, so no memory is missing.
   What a handle takes beside it was measured on H100s with cuBLAS 13.1. PyTorch makes one for each thread that computes. It is
   two default workspaces and 1 MiB: by cuBLAS's documentation such a workspace has 32 MiB on Hopper, and 4 before it. */

int cublasCreate_v2(void **handle) {
  static int once;
  int64_t bytes = (fakecuda_cc() < 90 ? 9 : 65) * MIB;
  take_code(FAKECUDA_CUBLAS, bytes, once++ ? bytes : bytes + 417 * MIB);
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
