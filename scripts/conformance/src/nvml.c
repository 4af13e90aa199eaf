// Stands in for libnvidia-ml.so.1, which some releases need at load time: there is a
// device, and no process uses it, so OOM messages lack the sentence about other processes.
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  (void)id;
  *device = 0;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses(void* device, unsigned* count, void* processes) {
  (void)device;
  (void)processes;
  *count = 0;
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return 0;
}
// NVML_ERROR_NOT_SUPPORTED
int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return 3; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return 3; }
