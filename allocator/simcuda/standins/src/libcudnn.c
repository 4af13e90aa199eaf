/* cuDNN: convolutions and attention through the backend API of version 8 and later, and batch normalization through the
   earlier one. Execution plans need the workspaces of workspaces.h and attention.h. */

#include "workspaces.h"

#include "attention.h"

/* What cuDNN 9.19 takes of an H100 beside workspaces. */
int cudnnCreate(void **handle) {
  static int once;
  if (!once++) take_code(FAKECUDA_CUDNN, 18 * MIB, 204 * MIB);
  *handle = calloc(1, 256);
  return 0;
}

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

FREES(cudnnDestroy)
FREES(cudnnDestroyTensorDescriptor)
FREES(cudnnDestroyFilterDescriptor)
FREES(cudnnDestroyActivationDescriptor)

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

/* Attributes of cudnnBackendAttributeName_t. */
enum attribute {
  CONVOLUTION_DILATIONS = 102,
  CONVOLUTION_STRIDES = 103,
  HEURISTICS_MODE = 200,
  HEURISTICS_OPERATION_GRAPH = 201,
  HEURISTICS_RESULTS = 202,
  CONFIGURATION_ENGINE = 300,
  CONFIGURATION_SHARED_MEMORY_USED = 304,
  PLAN_CONFIGURATION = 401,
  PLAN_WORKSPACE_SIZE = 402,
  FORWARD_CONVOLUTION = 702,
  FORWARD_W = 703,
  FORWARD_X = 704,
  FORWARD_Y = 705,
  BACKWARD_DATA_CONVOLUTION = 708,
  BACKWARD_DATA_W = 709,
  BACKWARD_DATA_DX = 710,
  BACKWARD_DATA_DY = 711,
  BACKWARD_FILTER_CONVOLUTION = 714,
  BACKWARD_FILTER_DW = 715,
  BACKWARD_FILTER_X = 716,
  BACKWARD_FILTER_DY = 717,
  GRAPH_OPERATIONS = 801,
  TENSOR_TYPE = 901,
  TENSOR_SIZES = 902,
  TENSOR_STRIDES = 903,
  ENGINE_NUMERICAL_NOTES = 1303,
  REDUCTION_FROM = 1610,
  REDUCTION_TO = 1611,
};

/* cudnnBackendHeurMode_t and cudnnBackendNumericalNote_t. */
#define HEURISTICS_FALLBACK 2
#define NOTE_TENSOR_CORE 0

#define STATUS_NOT_SUPPORTED 3000

/* PyTorch takes the first plan that runs. With torch.backends.cudnn.benchmark, and only then, it asks for the fallbacks
   before it makes plans; then it requests the largest workspace of all plans, and keeps the fastest. */
enum engine { FIRST, FASTEST, TRIED };

/* The mode of the heuristics that were last asked. */
static _Thread_local int64_t last_mode;

/* Any descriptor of the backend API. Each keeps copies of what it is made from: the program frees those earlier. */
struct descriptor {
  struct tensor tensor;
  struct convolution convolution;
  struct reduction reduction;
  /* What all the reductions of a graph keep. */
  int64_t kept;
  int64_t mode;
  enum engine engine;
  enum arithmetic arithmetic;
};

int cudnnBackendCreateDescriptor(int type, void **descriptor) {
  *descriptor = calloc(1, sizeof(struct descriptor));
  return 0;
}

FREES(cudnnBackendDestroyDescriptor)

/* The descriptor that is the value of an attribute, or the first of them. */
static const struct descriptor *part(const void *values) { return *(struct descriptor *const *)values; }

static void set_sizes(int64_t *sizes, int64_t most, const int64_t *values, int64_t count) {
  memcpy(sizes, values, (count < most ? count : most) * sizeof *sizes);
}

int cudnnBackendSetAttribute(struct descriptor *of, int attribute, int type, int64_t count, const void *values) {
  struct convolution *convolution = &of->convolution;
  switch (attribute) {
    case TENSOR_TYPE:
      of->tensor.type = *(const int32_t *)values;
      break;
    case TENSOR_SIZES:
      of->tensor.rank = count < RANK ? count : RANK;
      set_sizes(of->tensor.sizes, RANK, values, count);
      break;
    case TENSOR_STRIDES:
      set_sizes(of->tensor.strides, RANK, values, count);
      break;
    case CONVOLUTION_STRIDES:
      set_sizes(convolution->stride, RANK - 2, values, count);
      break;
    case CONVOLUTION_DILATIONS:
      set_sizes(convolution->dilation, RANK - 2, values, count);
      break;
    case FORWARD_CONVOLUTION:
    case BACKWARD_DATA_CONVOLUTION:
    case BACKWARD_FILTER_CONVOLUTION:
      convolution->operation = attribute == FORWARD_CONVOLUTION         ? FORWARD
                               : attribute == BACKWARD_DATA_CONVOLUTION ? BACKWARD_DATA
                                                                        : BACKWARD_FILTER;
      memcpy(convolution->stride, part(values)->convolution.stride, sizeof convolution->stride);
      memcpy(convolution->dilation, part(values)->convolution.dilation, sizeof convolution->dilation);
      break;
    case FORWARD_X:
    case BACKWARD_DATA_DX:
    case BACKWARD_FILTER_X:
      convolution->x = part(values)->tensor;
      break;
    case FORWARD_W:
    case BACKWARD_DATA_W:
    case BACKWARD_FILTER_DW:
      convolution->w = part(values)->tensor;
      break;
    case FORWARD_Y:
    case BACKWARD_DATA_DY:
    case BACKWARD_FILTER_DY:
      convolution->y = part(values)->tensor;
      break;
    case REDUCTION_FROM:
      of->reduction.from = part(values)->tensor;
      break;
    case REDUCTION_TO:
      of->reduction.to = part(values)->tensor;
      break;
    case GRAPH_OPERATIONS:
      /* The first of these, where a bias and an activation follow the convolution. */
      *convolution = part(values)->convolution;
      for (int64_t i = 0; i < count; i++)
        of->kept += kept_for_reduction(&((struct descriptor *const *)values)[i]->reduction);
      break;
    case HEURISTICS_OPERATION_GRAPH:
      *convolution = part(values)->convolution;
      of->kept = part(values)->kept;
      break;
    case HEURISTICS_MODE:
      of->mode = *(const int32_t *)values;
      break;
    case PLAN_CONFIGURATION:
      *of = *part(values);
      if (of->engine == FIRST && last_mode == HEURISTICS_FALLBACK) of->engine = FASTEST;
      break;
  }
  return 0;
}

#define ENGINES 2

/* The engines for a convolution: how many are written, or how many there are if none is wanted. PyTorch leaves out those with
   tensor cores for float if it may not use TF32. */
static int64_t engines(const struct descriptor *heuristics, int64_t wanted, struct descriptor **configurations) {
  last_mode = heuristics->mode;
  if (!configurations || wanted == 0) return ENGINES;
  int64_t written = wanted < ENGINES ? wanted : ENGINES;
  for (int64_t i = 0; i < written; i++) {
    configurations[i]->convolution = heuristics->convolution;
    configurations[i]->kept = heuristics->kept;
    configurations[i]->engine = heuristics->mode == HEURISTICS_FALLBACK ? TRIED : FIRST;
    configurations[i]->arithmetic = i == 0 ? TENSOR_CORES : CUDA_CORES;
  }
  return written;
}

static int64_t workspace(const struct descriptor *of) {
  /* PyTorch describes nothing but convolutions and attention. */
  if (of->convolution.operation == NO_CONVOLUTION) return PLAN_OF_ATTENTION + of->kept;
  const struct convolution *convolution = &of->convolution;
  return end_of(of->engine == TRIED ? trial(convolution, of->arithmetic)
                                    : plan(convolution, of->arithmetic, of->engine == FASTEST));
}

int cudnnBackendGetAttribute(struct descriptor *of, int attribute, int type, int64_t wanted, int64_t *count,
                             void *values) {
  int64_t found = 0;
  switch (attribute) {
    case HEURISTICS_RESULTS:
      found = engines(of, wanted, values);
      break;
    case CONFIGURATION_ENGINE:
      found = 1;
      if (values && wanted && *(void **)values) **(struct descriptor **)values = *of;
      break;
    case CONFIGURATION_SHARED_MEMORY_USED:
      found = 1;
      if (values && wanted) *(int32_t *)values = 0;
      break;
    case ENGINE_NUMERICAL_NOTES:
      found = of->arithmetic == TENSOR_CORES;
      if (values && wanted && found) *(int32_t *)values = NOTE_TENSOR_CORE;
      break;
    case PLAN_WORKSPACE_SIZE:
      found = 1;
      if (values && wanted) *(int64_t *)values = workspace(of);
      break;
  }
  if (count) *count = found;
  return 0;
}

/* A plan that was only tried is never the fastest. */
int cudnnBackendExecute(void *handle, const struct descriptor *plan, void *values) {
  return plan->engine == TRIED ? STATUS_NOT_SUPPORTED : 0;
}
