/* NVRTC: compiles every program to the same code, which the crate loads as a module with every kernel asked for. */

/* How an object file begins. */
static const char code[] = "\177ELF";

int nvrtcVersion(int *major, int *minor) {
  *major = CUDA;
  *minor = 0;
  return 0;
}

static int size(void *program, size_t *bytes) {
  *bytes = sizeof code;
  return 0;
}

static int copy(void *program, char *to) {
  memcpy(to, code, sizeof code);
  return 0;
}

int nvrtcGetCUBINSize(void *program, size_t *bytes) { return size(program, bytes); }
int nvrtcGetCUBIN(void *program, char *to) { return copy(program, to); }
int nvrtcGetPTXSize(void *program, size_t *bytes) { return size(program, bytes); }
int nvrtcGetPTX(void *program, char *to) { return copy(program, to); }

int nvrtcGetProgramLogSize(void *program, size_t *bytes) {
  *bytes = 1;
  return 0;
}

int nvrtcGetProgramLog(void *program, char *to) {
  *to = 0;
  return 0;
}

int nvrtcGetLoweredName(void *program, const char *expression, const char **name) {
  *name = expression;
  return 0;
}

DESCRIBES(nvrtcGetErrorString)
