// Runs PaddlePaddle's own AutoGrowthBestFitAllocator (from the paddlepaddle wheel) through a trace.
//
//     record CAPACITY [--small_pool_size_in_mb=1 ...] < operations > trace
//
// CAPACITY: bytes of the device. It is only pretended: memory comes in steps of 2 MiB, at addresses
// that only grow, and is never read or written. The rest of the arguments are flags of Paddle's.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include "paddle/common/flags.h"
#include "paddle/phi/core/memory/allocation/auto_growth_best_fit_allocator.h"
#ifdef STREAM_SAFE
#include "stream_safe.h"
#endif

PD_DECLARE_uint64(alignment_size);
PD_DECLARE_uint64(auto_growth_chunk_size_in_mb);

namespace {

using paddle::memory::allocation::Allocation;
using paddle::memory::allocation::AllocationPtr;
using paddle::memory::allocation::Allocator;
using paddle::memory::allocation::AutoGrowthBestFitAllocator;
using paddle::memory::allocation::BadAlloc;

constexpr uint64_t kMiB = 1 << 20;

class Device : public Allocator {
 public:
  explicit Device(uint64_t capacity) : free_(capacity) {}
  bool IsAllocThreadSafe() const override { return true; }

 protected:
  phi::Allocation* AllocateImpl(size_t size) override {
    uint64_t taken = Rounded(size);
    if (taken > free_) throw BadAlloc("out of memory", __FILE__, __LINE__);
    free_ -= taken;
    auto* allocation = new Allocation(reinterpret_cast<void*>(next_), size, phi::CPUPlace());
    next_ += taken;
    return allocation;
  }

  void FreeImpl(phi::Allocation* allocation) override {
    free_ += Rounded(allocation->size());
    delete allocation;
  }

 private:
  static uint64_t Rounded(uint64_t size) { return (size + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB); }

  uint64_t free_;
  uint64_t next_ = 0x20000000000;
};

// One for each stream, as Paddle sets them up for a device.
class Original {
 public:
  explicit Original(uint64_t capacity) : device_(std::make_shared<Device>(capacity)) {}

  AllocationPtr Allocate(uint64_t bytes, uint64_t stream) {
    auto& allocator = streams_[stream];
    if (allocator == nullptr) allocator = Make(stream);
    return allocator->Allocate(bytes);
  }

  void Release() {
    for (auto& [stream, allocator] : streams_) allocator->Release(kPlace);
  }

#ifdef STREAM_SAFE
  static void RecordStream(const AllocationPtr& allocation, uint64_t stream) {
    using paddle::memory::allocation::StreamSafeCUDAAllocation;
    static_cast<StreamSafeCUDAAllocation*>(allocation.get())->RecordStream(Handle(stream));
  }
#endif

 private:
  static inline const phi::GPUPlace kPlace{0};

  static void* Handle(uint64_t stream) { return reinterpret_cast<void*>(stream * 0x1000); }

  std::shared_ptr<Allocator> Make(uint64_t stream) {
    auto auto_growth = std::make_shared<AutoGrowthBestFitAllocator>(
        device_, FLAGS_alignment_size, FLAGS_auto_growth_chunk_size_in_mb * kMiB);
#ifdef STREAM_SAFE
    using paddle::memory::allocation::StreamSafeCUDAAllocator;
    return std::make_shared<StreamSafeCUDAAllocator>(auto_growth, kPlace, Handle(stream));
#else
    if (stream != 0) throw std::runtime_error("several streams: build with STREAM_SAFE");
    return auto_growth;
#endif
  }

  std::shared_ptr<Device> device_;
  std::map<uint64_t, std::shared_ptr<Allocator>> streams_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "record CAPACITY [--flag=value ...] < operations > trace\n";
    return 2;
  }
  Original original(std::strtoull(argv[1], nullptr, 10));
  --argc, ++argv;
  paddle::flags::ParseCommandLineFlags(&argc, &argv);
  std::map<std::string, AllocationPtr> live;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string op, name;
    words >> op >> name;
    if (op == "a") {
      uint64_t bytes, stream;
      words >> bytes >> stream;
      try {
        AllocationPtr allocation = original.Allocate(bytes, stream);
        std::cout << line << " " << allocation->ptr() << "\n";
        live.emplace(name, std::move(allocation));
      } catch (const BadAlloc&) {
        std::cout << line << " oom\n";
      }
    } else if (op == "f") {
      // What was never allocated is not freed.
      if (live.erase(name) == 1) std::cout << line << "\n";
#ifdef STREAM_SAFE
    } else if (op == "r") {
      uint64_t stream;
      words >> stream;
      if (auto found = live.find(name); found != live.end()) {
        Original::RecordStream(found->second, stream);
        std::cout << line << "\n";
      }
#endif
    } else if (op == "e") {
      original.Release();
      std::cout << line << "\n";
    } else {
      std::cout << line << "\n";  // a comment
    }
  }
  return 0;
}
