// Puts operations through the Vulkan Memory Allocator, unmodified, and prints what it answered as a
// vector of allocator/tests/originals.
//
//     recorder CAPACITY [BLOCK] < operations > vector
//
// CAPACITY are the bytes of the device, BLOCK is preferredLargeHeapBlockSize. Below the allocator
// is no Vulkan: it is given functions that take memory from a device that only counts, and that
// places each allocation, rounded up to 2 MiB, after the last one.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#define VMA_IMPLEMENTATION
#define VMA_STATIC_VULKAN_FUNCTIONS 0
#define VMA_DYNAMIC_VULKAN_FUNCTIONS 0
#include <vk_mem_alloc.h>

namespace {

constexpr uint64_t kGranularity = 2ull << 20;
constexpr uint64_t kAlignment = 256;

// The device: one heap, one type of memory, which only the device sees.
struct Device {
  uint64_t capacity = 0;
  uint64_t used = 0;
  uint64_t next = 0x20000000000;
  std::unordered_map<uint64_t, uint64_t> held;
} device;

uint64_t round_up(uint64_t bytes, uint64_t step) { return (bytes + step - 1) / step * step; }

VkResult allocate_memory(VkDevice, const VkMemoryAllocateInfo* info, const VkAllocationCallbacks*,
                         VkDeviceMemory* memory) {
  uint64_t bytes = round_up(info->allocationSize, kGranularity);
  if (device.used + bytes > device.capacity) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  device.used += bytes;
  device.held[device.next] = bytes;
  *memory = (VkDeviceMemory)device.next;
  device.next += bytes;
  return VK_SUCCESS;
}

void free_memory(VkDevice, VkDeviceMemory memory, const VkAllocationCallbacks*) {
  auto found = device.held.find((uint64_t)memory);
  device.used -= found->second;
  device.held.erase(found);
}

void properties(VkPhysicalDevice, VkPhysicalDeviceProperties* properties) {
  memset(properties, 0, sizeof *properties);
  properties->apiVersion = VK_API_VERSION_1_0;
  properties->deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  properties->limits.bufferImageGranularity = 1;
  properties->limits.nonCoherentAtomSize = 1;
  properties->limits.maxMemoryAllocationCount = UINT32_MAX;
}

void memory_properties(VkPhysicalDevice, VkPhysicalDeviceMemoryProperties* properties) {
  memset(properties, 0, sizeof *properties);
  properties->memoryTypeCount = 1;
  properties->memoryTypes[0] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0};
  properties->memoryHeapCount = 1;
  properties->memoryHeaps[0] = {device.capacity, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
}

// Asked for, but never called.
[[noreturn]] void never() { abort(); }

VmaAllocator create_allocator(uint64_t block) {
  VmaVulkanFunctions functions = {};
  functions.vkGetPhysicalDeviceProperties = properties;
  functions.vkGetPhysicalDeviceMemoryProperties = memory_properties;
  functions.vkAllocateMemory = allocate_memory;
  functions.vkFreeMemory = free_memory;
  functions.vkMapMemory = (PFN_vkMapMemory)never;
  functions.vkUnmapMemory = (PFN_vkUnmapMemory)never;
  functions.vkFlushMappedMemoryRanges = (PFN_vkFlushMappedMemoryRanges)never;
  functions.vkInvalidateMappedMemoryRanges = (PFN_vkInvalidateMappedMemoryRanges)never;
  functions.vkBindBufferMemory = (PFN_vkBindBufferMemory)never;
  functions.vkBindImageMemory = (PFN_vkBindImageMemory)never;
  functions.vkGetBufferMemoryRequirements = (PFN_vkGetBufferMemoryRequirements)never;
  functions.vkGetImageMemoryRequirements = (PFN_vkGetImageMemoryRequirements)never;
  functions.vkCreateBuffer = (PFN_vkCreateBuffer)never;
  functions.vkDestroyBuffer = (PFN_vkDestroyBuffer)never;
  functions.vkCreateImage = (PFN_vkCreateImage)never;
  functions.vkDestroyImage = (PFN_vkDestroyImage)never;
  functions.vkCmdCopyBuffer = (PFN_vkCmdCopyBuffer)never;
  VmaAllocatorCreateInfo info = {};
  info.vulkanApiVersion = VK_API_VERSION_1_0;
  info.instance = (VkInstance)0x1;
  info.physicalDevice = (VkPhysicalDevice)0x1;
  info.device = (VkDevice)0x1;
  info.preferredLargeHeapBlockSize = block;
  info.pVulkanFunctions = &functions;
  VmaAllocator allocator = nullptr;
  if (vmaCreateAllocator(&info, &allocator) != VK_SUCCESS) abort();
  return allocator;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "recorder CAPACITY [BLOCK] < operations > vector\n");
    return 2;
  }
  device.capacity = strtoull(argv[1], nullptr, 0);
  uint64_t block = argc > 2 ? strtoull(argv[2], nullptr, 0) : 0;
  printf("# original: Vulkan Memory Allocator 3.3.0 (vk-mem 0.5.0)\n# policy: tlsf\n");
  if (block != 0) printf("# conf: block:%llu\n", (unsigned long long)block);
  printf("# capacity: %llu\n", (unsigned long long)device.capacity);

  VmaAllocator allocator = create_allocator(block);
  std::unordered_map<unsigned long long, VmaAllocation> live;
  char line[128];
  while (fgets(line, sizeof line, stdin)) {
    unsigned long long id, bytes;
    unsigned stream;
    if (sscanf(line, "a %llu %llu %u", &id, &bytes, &stream) == 3) {
      VkMemoryRequirements requirements = {round_up(bytes, kAlignment), kAlignment, 1};
      VmaAllocationCreateInfo info = {};
      VmaAllocation allocation = nullptr;
      VmaAllocationInfo where;
      VkResult result = vmaAllocateMemory(allocator, &requirements, &info, &allocation, &where);
      if (result != VK_SUCCESS) {
        printf("a %llu %llu %u oom\n", id, bytes, stream);
        continue;
      }
      live[id] = allocation;
      uint64_t addr = (uint64_t)where.deviceMemory + where.offset;
      printf("a %llu %llu %u 0x%llx\n", id, bytes, stream, (unsigned long long)addr);
    } else if (sscanf(line, "f %llu", &id) == 1) {
      auto found = live.find(id);
      if (found != live.end()) {
        vmaFreeMemory(allocator, found->second);
        live.erase(found);
      }
      printf("f %llu\n", id);
    } else {
      fprintf(stderr, "no operation: %s", line);
      return 2;
    }
  }
  for (auto [id, allocation] : live) vmaFreeMemory(allocator, allocation);
  vmaDestroyAllocator(allocator);
  if (device.used != 0) abort();
}
