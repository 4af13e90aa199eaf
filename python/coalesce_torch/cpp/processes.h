// The sentence of PyTorch's out-of-memory errors about the processes that use a GPU.
#pragma once

#include <cstdint>
#include <cstdio>
#include <dlfcn.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "torch.h"

namespace coalesce {

// The functions of NVIDIA's management library that are needed, by their names in nvml.h. A result of 0 is success.
class Nvml {
 public:
  struct Process {
    unsigned int pid;
    unsigned long long used_bytes;
  };

  // The processes that compute on a device; none if the library does not say.
  static std::vector<Process> processes_on(c10::DeviceIndex device) {
    static const Nvml library;
    cudaDeviceProp properties{};
    if (!library.is_ready_ || cudaGetDeviceProperties(&properties, device) != cudaSuccess) return {};
    char bus_id[32];
    std::snprintf(bus_id, sizeof bus_id, "%08X:%02X:%02X.0", properties.pciDomainID, properties.pciBusID,
                  properties.pciDeviceID);
    void* of_device = nullptr;
    if (library.device_(bus_id, &of_device) != 0) return {};
    std::vector<Process> processes(8);
    while (true) {
      auto count = static_cast<unsigned int>(processes.size());
      const int result = library.processes_(of_device, &count, processes.data());
      if (result != kInsufficientSize) {
        processes.resize(result == 0 ? count : 0);
        return processes;
      }
      processes.resize(std::max<size_t>(count, processes.size()) * 2);
    }
  }

 private:
  static constexpr int kInsufficientSize = 7;

  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    if (library == nullptr) return;
    const auto start = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
    device_ = reinterpret_cast<decltype(device_)>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
    processes_ = reinterpret_cast<decltype(processes_)>(dlsym(library, "nvmlDeviceGetComputeRunningProcesses"));
    is_ready_ = start != nullptr && device_ != nullptr && processes_ != nullptr && start() == 0;
  }

  int (*device_)(const char* bus_id, void** device) = nullptr;
  int (*processes_)(void* device, unsigned int* count, Process*) = nullptr;
  bool is_ready_ = false;
};

// Bytes as PyTorch's messages print them. Streams of characters are not used here: a compiler that links its own
// copy of the standard library would not find the locale that PyTorch's copy has set up.
inline std::string size_text(uint64_t bytes) {
  if (bytes <= 1024) return std::to_string(bytes) + " bytes";
  const char* unit = "KiB";
  double size = static_cast<double>(bytes) / 1024;
  for (const char* larger : {"MiB", "GiB"}) {
    if (size <= 1024) break;
    size /= 1024;
    unit = larger;
  }
  char text[64];
  std::snprintf(text, sizeof text, "%.2f %s", size, unit);
  return text;
}

// Inserts the sentence into an error of the reference, whose text has no place for it elsewhere.
inline std::string with_processes(std::string message, c10::DeviceIndex device) {
  const std::string before = " is free. ";
  const auto place = message.find(before);
  if (place == std::string::npos) return message;
  std::string sentence;
  for (const auto& process : Nvml::processes_on(device)) {
    const bool is_this = process.pid == static_cast<unsigned int>(getpid());
    sentence += is_this ? "Including non-PyTorch memory, this process" : "Process " + std::to_string(process.pid);
    sentence += " has " + size_text(process.used_bytes) + " memory in use. ";
  }
  return message.insert(place + before.size(), sentence);
}

}  // namespace coalesce
