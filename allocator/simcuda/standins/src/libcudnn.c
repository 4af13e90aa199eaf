/* cuDNN: convolutions and attention through the backend API of version 8 and later, and batch normalization through the
   earlier one. The workspace of attention is laid out by the part of cuDNN that PyTorch contains.
   Every execution plan says that it needs no workspace. */

/* Attributes of cudnnBackendAttributeName_t. */
#define ENGINE_HEURISTICS_RESULTS 202
#define ENGINE_CONFIGURATION_ENGINE 300
#define ENGINE_CONFIGURATION_SHARED_MEMORY_USED 304
#define EXECUTION_PLAN_WORKSPACE_SIZE 402

/* PyTorch refuses a cuDNN that is older than the one it was built with, so the version is settable, as in 91900. */
size_t cudnnGetVersion(void) {
  const char *version = getenv("FAKE_CUDNN_VERSION");
  return version && *version ? strtoul(version, NULL, 10) : 91900;
}

/* The major, minor and patch version are the properties 0, 1 and 2. */
int cudnnGetProperty(int property, int *value) {
  size_t version = cudnnGetVersion();
  int parts[] = {version / 10000, version / 100 % 100, version % 100};
  *value = parts[property];
  return 0;
}

size_t cudnnGetCudartVersion(void) { return CUDA * 1000; }

DESCRIBES(cudnnGetErrorString)

void cudnnGetLastErrorString(char *text, size_t bytes) {
  if (bytes) *text = 0;
}

int cudnnDestroy(void *handle) {
  free(handle);
  return 0;
}

int cudnnDestroyTensorDescriptor(void *descriptor) {
  free(descriptor);
  return 0;
}

int cudnnDestroyFilterDescriptor(void *descriptor) {
  free(descriptor);
  return 0;
}

int cudnnDestroyActivationDescriptor(void *descriptor) {
  free(descriptor);
  return 0;
}

int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int operations, void *x, void *z,
                                                             void *y, void *scale, void *activation, size_t *bytes) {
  *bytes = 0;
  return 0;
}

int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int operations, void *x, void *y,
                                                      void *dy, void *dz, void *dx, void *scale, void *activation,
                                                      size_t *bytes) {
  *bytes = 0;
  return 0;
}

int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int operations, void *activation,
                                                         void *x, size_t *bytes) {
  *bytes = 0;
  return 0;
}

int cudnnBackendCreateDescriptor(int type, void **descriptor) {
  *descriptor = calloc(1, 256);
  return 0;
}

int cudnnBackendDestroyDescriptor(void *descriptor) {
  free(descriptor);
  return 0;
}

int cudnnBackendGetAttribute(void *descriptor, int attribute, int type, int64_t wanted, int64_t *count, void *values) {
  int64_t found = 0;
  switch (attribute) {
    case ENGINE_HEURISTICS_RESULTS:
      found = 1;
      break;
    case ENGINE_CONFIGURATION_ENGINE:
      found = 1;
      if (values && wanted && !*(void **)values) *(void **)values = calloc(1, 256);
      break;
    case ENGINE_CONFIGURATION_SHARED_MEMORY_USED:
      found = 1;
      if (values && wanted) *(int32_t *)values = 0;
      break;
    case EXECUTION_PLAN_WORKSPACE_SIZE:
      found = 1;
      if (values && wanted) *(int64_t *)values = 0;
      break;
  }
  if (count) *count = found;
  return 0;
}
