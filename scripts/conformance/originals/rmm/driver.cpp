// Replays a script through a memory resource of RMM and writes it down again with the addresses
// that RMM gave: a vector of allocator/tests/originals. See ../README.md.
#include <cuda_runtime_api.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <rmm/error.hpp>
#include <rmm/logger.hpp>
#include <sstream>
#include <string>
#include <unordered_map>

#include "redirect.h"
#include "resources.h"
#include "runtime.h"

namespace {

cuda::stream_ref nth_stream(uint64_t k) {
  return cuda::stream_ref{reinterpret_cast<cudaStream_t>(k * 0x1000)};
}

struct Allocation {
  void* pointer;
  uint64_t bytes;
  uint64_t stream;
};

class Replay {
 public:
  void run(std::istream& script) {
    printf("# original: librmm-cu13 26.10.0\n");
    for (std::string line; std::getline(script, line);) {
      std::istringstream words(line);
      std::string op;
      if (!(words >> op)) continue;
      if (op == "#") {
        if (header(words)) puts(line.c_str());
      } else if (op == "a") {
        allocate(words);
      } else if (op == "f") {
        free(words);
      } else if (op == "e") {
        empty();
      } else {
        die("unknown operation " + op);
      }
    }
  }

 private:
  // Whether the line is to be kept: a vector that is recorded again has said what it was.
  bool header(std::istringstream& words) {
    std::string key, value;
    words >> key >> value;
    if (key == "policy:") policy_ = value;
    if (key == "conf:") conf_ = Conf(value);
    if (key == "capacity:") reset_device(std::stoull(value));
    return key != "original:";
  }

  void allocate(std::istringstream& words) {
    uint64_t id, bytes, stream;
    if (!(words >> id >> bytes >> stream)) die("a ID BYTES STREAM");
    printf("a %" PRIu64 " %" PRIu64 " %" PRIu64 " ", id, bytes, stream);
    try {
      // A resource that preallocates takes its memory when it is first asked.
      if (!resource_) resource_ = make(policy_, conf_);
      void* pointer = resource_->allocate(nth_stream(stream), bytes, 256);
      live_[id] = {pointer, bytes, stream};
      printf("%p\n", pointer);
    } catch (const rmm::bad_alloc&) {
      puts("oom");
    }
  }

  void free(std::istringstream& words) {
    uint64_t id;
    if (!(words >> id)) die("f ID");
    auto found = live_.find(id);
    if (found == live_.end()) return;
    auto [pointer, bytes, stream] = found->second;
    resource_->deallocate(nth_stream(stream), pointer, bytes, 256);
    live_.erase(found);
    printf("f %" PRIu64 "\n", id);
  }

  // RMM returns memory when a resource is destroyed, and only then may all be returned.
  void empty() {
    if (!live_.empty()) return;
    resource_.reset();
    puts("e");
  }

  std::string policy_;
  Conf conf_{""};
  std::optional<Resource> resource_;
  std::unordered_map<uint64_t, Allocation> live_;
};

}  // namespace

int main() {
  redirect_librmm();
  rmm::default_logger().set_level(rapids_logger::level_enum::off);
  Replay().run(std::cin);
  // The resource is left as it is: at the end of a process RMM returns nothing either.
  fflush(stdout);
  _Exit(0);
}
