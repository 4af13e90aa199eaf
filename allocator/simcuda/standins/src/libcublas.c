/* cuBLAS: products of matrices succeed and compute nothing. PyTorch gives cuBLAS its workspace, so no memory is missing. */

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
