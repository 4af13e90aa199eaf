/* What the crate lacks of the runtime: kernels, which are registered and never run, and functions that differ between
   CUDA 12 and 13. The crate has the rest: libcuda.so.1. */

/* cudaFuncAttributes (CUDA 13.0). Earlier versions have fewer fields at its end. */
struct function_attributes {
  size_t shared_bytes, constant_bytes, local_bytes;
  int max_threads_per_block, registers, ptx_version, binary_version, cache_mode;
  int max_dynamic_shared_bytes, preferred_carveout, cluster_must_be_set;
  int cluster_width, cluster_height, cluster_depth;
  int cluster_policy, non_portable_cluster, reserved[16];
};

/* CUB chooses among the architectures that it was compiled for by this number, as in 86, and fails on another. */
static int binary_version(void) {
  const char *version = getenv("FAKE_BINARY_CC");
  return version && *version ? atoi(version) : fakecuda_cc();
}

int cudaFuncGetAttributes(struct function_attributes *found, const void *function) {
  memset(found, 0, sizeof *found);
  found->max_threads_per_block = 1024;
  found->registers = 32;
  found->ptx_version = found->binary_version = binary_version();
  found->max_dynamic_shared_bytes = 232448;
  return 0;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks) {
  *blocks = 8;
  return 0;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks) {
  *blocks = 8;
  return 0;
}

int cudaGetSymbolAddress(void **address, const void *symbol) {
  *address = (void *)0x1f000000000;
  return 0;
}

int cudaGetSymbolSize(size_t *bytes, const void *symbol) {
  *bytes = 8;
  return 0;
}

void **__cudaRegisterFatBinary(void *binary) {
  static void *handle[8];
  return handle;
}

char __cudaInitModule(void **handle) { return 1; }

int __cudaGetKernel(void **kernel, const void *function) {
  *kernel = (void *)function;
  return 0;
}

int cudaGraphNodeGetDependencies_v2(void *node, void *to, void *edges, void *count);

#if CUDA >= 13
int cudaGraphNodeGetDependencies(void *node, void *to, void *edges, void *count) {
  return cudaGraphNodeGetDependencies_v2(node, to, edges, count);
}
#else
/* CUDA 12 has no edges here. */
int cudaGraphNodeGetDependencies(void *node, void *to, void *count) {
  return cudaGraphNodeGetDependencies_v2(node, to, NULL, count);
}
#endif

/* The properties of a device in CUDA 12: the fields of CUDA 13, with seven more in between. */
int cudaGetDeviceProperties_v2(char *to, int device) {
  int cudaGetDeviceProperties(char *, int);
  static const struct {
    int start, end, to;
  } parts[] = {
      {0, 384, 0},     /* to the alignment of textures */
      {384, 388, 388}, /* multiprocessors */
      {388, 396, 396}, /* is integrated, can map host memory */
      {552, 592, 568}, /* from the alignment of surfaces */
      {592, 620, 612}, /* from the width of the bus */
      {624, 652, 640}, /* from the shared memory of a multiprocessor */
      {652, 660, 672}, /* pageable memory */
      {660, 672, 680}, /* from compute preemption */
      {672, 752, 696}, /* from the shared memory that a block may opt in to */
  };
  char from[1008];
  int error = cudaGetDeviceProperties(from, device);
  if (error) return error;
  memset(to, 0, 1032);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    memcpy(to + parts[i].to, from + parts[i].start, parts[i].end - parts[i].start);
  return 0;
}

/* The driver's functions that the crate lacks are here too: programs that are linked with it look in all libraries. */
int cuPointerGetAttribute(void *value, int attribute, uint64_t address) {
  *(int *)value = 0;
  return 0;
}
