// Replays a trace through the real BFC allocator (tsl::BFCAllocator) over a device that exists only
// as numbers, and prints the trace with the addresses it was given.
//
//   bfc LIBRARY PROPERTY... < TRACE
//
// LIBRARY is a released binary that has the allocator in it: libtensorflow_framework.so.2 of a
// TensorFlow wheel, which exports it, or xla_cuda_plugin.so of a jax-cuda*-pjrt wheel, which keeps
// it to itself but tells its symbols. No header of either is needed: the few classes that pass the
// border are declared below as the binaries lay them out.
//
// PROPERTY is `capacity=BYTES` (of the device), `limit=BYTES`, `growth=0|1`,
// `garbage_collection=0|1`, `fragmentation_fraction=F`, and for the two-ended mode of XLA
// `lower_from=BYTES`: requests of at least so many bytes are asked for at the lower end, all others
// at the upper end.
//
// TRACE and output are the format of allocator/tests/originals, without its header.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

[[noreturn]] void die(const std::string& why) {
  fprintf(stderr, "bfc: %s\n", why.c_str());
  exit(2);
}

// ---- what passes the border, as laid out in both binaries --------------------------------------

// tsl::SubAllocator: what the allocator takes its regions from.
class SubAllocator {
 public:
  using Visitor = std::function<void(void*, int, size_t)>;
  virtual ~SubAllocator() = default;
  virtual void* Alloc(size_t alignment, size_t bytes, size_t* received) = 0;
  virtual void Free(void* addr, size_t bytes) = 0;
  virtual bool SupportsCoalescing() const = 0;
  virtual int GetMemoryType() const { return 1; }                // device
  virtual size_t GetAllocationGranularity() const { return 1; }  // XLA of 2026 only

 private:
  std::vector<Visitor> alloc_visitors_, free_visitors_;
};

// tsl::BFCAllocator::AllocationPolicy (XLA of 2026 only).
struct EndPolicy {
  int hole_order;  // 0 lowest address first, 1 highest
  int hole_split;  // 0 by the heuristic, 1 exactly
  int gap_split;
};

// tsl::BFCAllocator::Options. TensorFlow 2.21 knows the first four.
struct Options {
  bool allow_growth = false;
  bool allow_retry_on_failure = false;
  bool garbage_collection = false;
  double fragmentation_fraction = 0;
  bool enable_spatial_partitioning = false;
  size_t initial_region_bytes = 0;
  EndPolicy lower{0, 0, 1};
  EndPolicy upper{0, 0, 1};
};
static_assert(offsetof(Options, fragmentation_fraction) == 8 && sizeof(Options) == 56);

// tsl::AllocationAttributes. TensorFlow 2.21 knows the first three.
struct Attributes {
  bool retry_on_failure = false;
  bool allocation_will_be_logged = false;
  std::function<uint64_t()>* freed_by_func = nullptr;
  uint8_t end = 0;  // 0 lower, 1 upper
};

// ---- the simulated device, as SimDevice with AddressPolicy::Up ----------------------------------

constexpr uint64_t kGranularity = 2 << 20;

class Device : public SubAllocator {
 public:
  explicit Device(uint64_t capacity) : capacity_(capacity) {}
  void* Alloc(size_t, size_t bytes, size_t* received) override {
    *received = 0;
    const uint64_t rounded = (bytes + kGranularity - 1) / kGranularity * kGranularity;
    if (rounded > capacity_ - used_) {
      // TensorFlow asks for the last 2304 bytes again and again.
      if (++refusals_ > 10000) die("a request that never ends");
      return nullptr;
    }
    used_ += rounded;
    const uint64_t addr = next_;
    next_ += rounded;
    *received = bytes;
    return reinterpret_cast<void*>(addr);
  }
  void Free(void*, size_t bytes) override {
    used_ -= (bytes + kGranularity - 1) / kGranularity * kGranularity;
  }
  bool SupportsCoalescing() const override { return false; }
  void begin_request() { refusals_ = 0; }

 private:
  const uint64_t capacity_;
  uint64_t used_ = 0;
  uint64_t next_ = 0x20000000000;
  uint64_t refusals_ = 0;  // in this request
};

// ---- functions of the library, by mangled name --------------------------------------------------

class Library {
 public:
  explicit Library(const char* path) {
    handle_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) die(dlerror());
    read_symbols(path);
  }

  // Exported or not.
  template <typename F>
  F* function(const char* name) const {
    if (void* exported = dlsym(handle_, name)) return reinterpret_cast<F*>(exported);
    const auto found = locals_.find(name);
    if (found == locals_.end()) die(std::string("the library lacks ") + name);
    link_map* map = nullptr;
    dlinfo(handle_, RTLD_DI_LINKMAP, &map);
    return reinterpret_cast<F*>(map->l_addr + found->second);
  }

 private:
  // Keeps the functions of BFCAllocator that the symbol table has.
  void read_symbols(const char* path) {
    const int file = open(path, O_RDONLY);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0) die(std::string("cannot read ") + path);
    void* mapped = mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) die(std::string("cannot map ") + path);
    const char* image = static_cast<const char*>(mapped);
    const auto* header = reinterpret_cast<const Elf64_Ehdr*>(image);
    const auto* sections = reinterpret_cast<const Elf64_Shdr*>(image + header->e_shoff);
    for (int i = 0; i < header->e_shnum; ++i) {
      if (sections[i].sh_type != SHT_SYMTAB) continue;
      const char* names = image + sections[sections[i].sh_link].sh_offset;
      const auto* symbols = reinterpret_cast<const Elf64_Sym*>(image + sections[i].sh_offset);
      for (size_t k = 0; k < sections[i].sh_size / sizeof(Elf64_Sym); ++k) {
        const char* name = names + symbols[k].st_name;
        if (strncmp(name, "_ZN3tsl12BFCAllocator", 21) == 0) locals_[name] = symbols[k].st_value;
      }
    }
    munmap(mapped, status.st_size);
    close(file);
  }

  void* handle_;
  std::unordered_map<std::string, uint64_t> locals_;
};

// ---- the allocator
// -------------------------------------------------------------------------------

class Bfc {
 public:
  Bfc(const Library& library, uint64_t capacity, uint64_t limit, const Options& options)
      : allocate_(library.function<void*(void*, size_t, size_t, const Attributes&)>(
            "_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE")),
        deallocate_(
            library.function<void(void*, void*)>("_ZN3tsl12BFCAllocator13DeallocateRawEPv")),
        release_(library.function<bool(void*, size_t)>(
            "_ZN3tsl12BFCAllocator21DeallocateFreeRegionsEm")) {
    using Construct =
        void(void*, std::unique_ptr<SubAllocator>*, size_t, const std::string&, const Options&);
    device_ = new Device(capacity);
    std::unique_ptr<SubAllocator> device(device_);
    library.function<Construct>(
        "_ZN3tsl12BFCAllocatorC1ESt10unique_ptrINS_12SubAllocatorESt14default_deleteIS2_EEmRKNSt7__"
        "cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS0_7OptionsE")(self_, &device, limit,
                                                                         "bfc", options);
  }
  void* allocate(size_t bytes, bool upper) {
    device_->begin_request();
    Attributes attributes;
    attributes.end = upper ? 1 : 0;
    return allocate_(self_, 256, bytes, attributes);
  }
  void deallocate(void* addr) { deallocate_(self_, addr); }
  // Gives back all idle regions; does nothing without garbage collection.
  void release() { release_(self_, 0); }

 private:
  alignas(64) char self_[8192] = {};  // 1,336 bytes in XLA of October 2026
  Device* device_;                    // the allocator's
  void* (*allocate_)(void*, size_t, size_t, const Attributes&);
  void (*deallocate_)(void*, void*);
  bool (*release_)(void*, size_t);
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) die("usage: bfc LIBRARY PROPERTY... < TRACE");
  setenv("TF_CPP_MIN_LOG_LEVEL", "3", 1);
  uint64_t capacity = 0, limit = 0, lower_from = 0;
  Options options;
  for (int i = 2; i < argc; ++i) {
    const std::string property = argv[i];
    const size_t equals = property.find('=');
    if (equals == std::string::npos) die("no value in " + property);
    const std::string key = property.substr(0, equals);
    const char* value = argv[i] + equals + 1;
    if (key == "capacity") {
      capacity = strtoull(value, nullptr, 10);
    } else if (key == "limit") {
      limit = strtoull(value, nullptr, 10);
    } else if (key == "growth") {
      options.allow_growth = *value == '1';
    } else if (key == "garbage_collection") {
      options.garbage_collection = *value == '1';
    } else if (key == "fragmentation_fraction") {
      options.fragmentation_fraction = strtod(value, nullptr);
    } else if (key == "lower_from") {
      lower_from = strtoull(value, nullptr, 10);
      options.enable_spatial_partitioning = true;
      options.lower = {0, 1, 1};  // as xla::CreateBFCAllocator sets them
      options.upper = {1, 0, 0};
    } else {
      die("unknown property " + key);
    }
  }
  const Library library(argv[1]);
  Bfc bfc(library, capacity, limit, options);

  std::unordered_map<uint64_t, void*> live;
  char line[256];
  while (fgets(line, sizeof line, stdin) != nullptr) {
    uint64_t id = 0, bytes = 0, stream = 0;
    if (sscanf(line, "a %" SCNu64 " %" SCNu64 " %" SCNu64, &id, &bytes, &stream) == 3) {
      const bool upper = options.enable_spatial_partitioning && bytes < lower_from;
      void* addr = bfc.allocate(bytes, upper);
      printf("a %" PRIu64 " %" PRIu64 " %" PRIu64 " ", id, bytes, stream);
      if (addr == nullptr) {
        printf("oom\n");
      } else {
        live[id] = addr;
        printf("%p\n", addr);
      }
    } else if (sscanf(line, "f %" SCNu64, &id) == 1) {
      const auto found = live.find(id);
      if (found == live.end()) continue;  // what it frees was refused
      bfc.deallocate(found->second);
      live.erase(found);
      fputs(line, stdout);
    } else if (line[0] == 'e') {
      bfc.release();
      fputs(line, stdout);
    } else {
      die(std::string("no line of a trace: ") + line);
    }
  }
  fflush(stdout);
  _exit(0);  // the libraries' own ends are none of our business
}
