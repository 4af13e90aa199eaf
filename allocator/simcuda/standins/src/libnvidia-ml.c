/* NVML: there is a device, and no process uses it, so the text of an out-of-memory error names no other processes.
   Some releases of PyTorch need the library when they start. */

#define NOT_SUPPORTED 3

SUCCEEDS(nvmlInit_v2)
SUCCEEDS(nvmlShutdown)

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
  *device = NULL;
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *processes) {
  *count = 0;
  return 0;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = 13000;
  return 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return NOT_SUPPORTED; }
