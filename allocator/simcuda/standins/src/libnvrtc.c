/* NVRTC: compiles to nothing. */

int nvrtcVersion(int *major, int *minor) {
  *major = CUDA;
  *minor = 0;
  return 0;
}

DESCRIBES(nvrtcGetErrorString)
