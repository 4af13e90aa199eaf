/* NVML: the simulated devices, whose handles are their numbers. No process uses them, so the text of an out-of-memory error names
   no other processes. Some releases of PyTorch need the library when they start. */

#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDeviceGetName(char *name, int room, int device);
int cuDeviceGetUuid_v2(unsigned char *uuid, int device);
int cuDeviceCanAccessPeer(int *can, int device, int peer);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuMemGetInfo_v2(size_t *free, size_t *total);

SUCCEEDS(nvmlShutdown)
DESCRIBES(nvmlErrorString)

int nvmlInit_v2(void) { return cuInit(0); }
int nvmlInit(void) { return nvmlInit_v2(); }
int nvmlInitWithFlags(unsigned flags) { return nvmlInit_v2(); }

static int number(void *device) { return (int)(intptr_t)device; }

int nvmlDeviceGetCount_v2(unsigned *count) { return cuDeviceGetCount((int *)count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  unsigned count = 0;
  nvmlDeviceGetCount_v2(&count);
  *device = (void *)(intptr_t)index;
  return index < count ? 0 : INVALID_ARGUMENT;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
  *device = NULL;
  return 0;
}

int nvmlDeviceGetIndex(void *device, unsigned *index) {
  *index = number(device);
  return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned room) { return cuDeviceGetName(name, room, number(device)); }

int nvmlDeviceGetUUID(void *device, char *text, unsigned room) {
  unsigned char id[16];
  int error = cuDeviceGetUuid_v2(id, number(device));
  if (error) return INVALID_ARGUMENT;
  char full[] = "GPU-00000000-0000-0000-0000-000000000000";
  char *at = full + 4;
  for (int i = 0; i < 16; i++) {
    if (*at == '-') at++;
    for (int shift = 4; shift >= 0; shift -= 4) *at++ = "0123456789abcdef"[id[i] >> shift & 15];
  }
  snprintf(text, room, "%s", full);
  return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
  *major = fakecuda_cc() / 10;
  *minor = fakecuda_cc() % 10;
  return 0;
}

/* Bytes of memory. The context is made current only for the question. */
static int memory(void *device, size_t *unused, size_t *total) {
  void *context;
  if (cuDevicePrimaryCtxRetain(&context, number(device))) return INVALID_ARGUMENT;
  cuCtxPushCurrent_v2(context);
  int error = cuMemGetInfo_v2(unused, total);
  cuCtxPopCurrent_v2(&context);
  cuDevicePrimaryCtxRelease_v2(number(device));
  return error;
}

/* nvmlMemory_t, and its second version */
struct memory {
  unsigned long long total, unused, used;
};
struct memory_v2 {
  unsigned version;
  unsigned long long total, reserved, unused, used;
};

int nvmlDeviceGetMemoryInfo(void *device, struct memory *found) {
  size_t unused = 0, total = 0;
  int error = memory(device, &unused, &total);
  found->total = total;
  found->unused = unused;
  found->used = total - unused;
  return error;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *found) {
  size_t unused = 0, total = 0;
  int error = memory(device, &unused, &total);
  found->total = total;
  found->reserved = 0;
  found->unused = unused;
  found->used = total - unused;
  return error;
}

int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *processes) {
  *count = 0;
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *processes) {
  *count = 0;
  return 0;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = 13000;
  return 0;
}

int nvmlSystemGetDriverVersion(char *version, unsigned room) {
  snprintf(version, room, "580.0");
  return 0;
}

/* Devices that can access each other's memory do so through NVLink. */
int nvmlDeviceGetP2PStatus(void *one, void *other, int index, int *status) {
  int can = 0, error = cuDeviceCanAccessPeer(&can, number(one), number(other));
  *status = !can;
  return error ? INVALID_ARGUMENT : 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetNumaNodeId(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetCpuAffinity(void) { return NOT_SUPPORTED; }
