#define E int
/* enough of cuDNN for convolution through the v8+ backend API and the legacy batch norm */
size_t cudnnGetVersion(void) { return 91900; }
size_t cudnnGetCudartVersion(void) { return 13000; }
const char *cudnnGetErrorString(int e) { return e ? "null cuDNN error" : "CUDNN_STATUS_SUCCESS"; }
void cudnnGetLastErrorString(char *s, size_t n) {
  if (n) *s = 0;
}
E cudnnCreate(void **h) {
  *h = malloc(64);
  return 0;
}
E cudnnDestroy(void *h) {
  free(h);
  return 0;
}
E cudnnCreateTensorDescriptor(void **h) {
  *h = malloc(64);
  return 0;
}
E cudnnDestroyTensorDescriptor(void *h) {
  free(h);
  return 0;
}
E cudnnCreateFilterDescriptor(void **h) {
  *h = malloc(64);
  return 0;
}
E cudnnDestroyFilterDescriptor(void *h) {
  free(h);
  return 0;
}
E cudnnCreateActivationDescriptor(void **h) {
  *h = malloc(64);
  return 0;
}
E cudnnDestroyActivationDescriptor(void *h) {
  free(h);
  return 0;
}
E cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *h, int m, int o, void *x, void *z,
                                                           void *y, void *b, void *a, size_t *n) {
  *n = 0;
  return 0;
}
E cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *h, int m, int o, void *x, void *y,
                                                    void *dy, void *dz, void *dx, void *db, void *a,
                                                    size_t *n) {
  *n = 0;
  return 0;
}
E cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *h, int m, int o, void *a, void *x,
                                                       size_t *n) {
  *n = 0;
  return 0;
}
/* backend descriptors.  The workspace an execution plan asks for is invented: null_ws_seq cycles
   through null_ws[], which the recorder sets; 0 entries = no workspace. */
long long null_ws[64];
int null_ws_n;
static int null_ws_i;
void null_cudnn_workspaces(int n, const long long *v) {
  null_ws_n = n < 64 ? n : 64;
  memcpy(null_ws, v, null_ws_n * 8);
  null_ws_i = 0;
}
E cudnnBackendCreateDescriptor(int t, void **d) {
  *d = calloc(1, 64);
  **(int **)d = t;
  return 0;
}
E cudnnBackendDestroyDescriptor(void *d) {
  free(d);
  return 0;
}
E cudnnBackendFinalize(void *d) { return 0; }
E cudnnBackendSetAttribute(void *d, int a, int t, int64_t n, const void *v) { return 0; }
E cudnnBackendExecute(void *h, void *p, void *v) { return 0; }
E cudnnBackendGetAttribute(void *d, int a, int t, int64_t want, int64_t *got, void *v) {
  int64_t n = 0;
  switch (a) {
    case 202:
      n = 1;
      break; /* CUDNN_ATTR_ENGINEHEUR_RESULTS */
    case 302:
      n = 1;
      if (v && want) *(void **)v = *(void **)v ? *(void **)v : calloc(1, 64);
      break; /* ENGINECFG_ENGINE.. */
    case 402:
      n = 1;
      if (v && want) *(int64_t *)v = null_ws_n ? null_ws[null_ws_i++ % null_ws_n] : 0;
      break; /* EXECUTION_PLAN_WORKSPACE_SIZE */
    default:
      n = 0;
  }
  if (got) *got = n;
  return 0;
}
