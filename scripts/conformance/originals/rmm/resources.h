// RMM's memory resources under the names and with the settings of our policies.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <rmm/cuda_device.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <sstream>
#include <string>

using Resource = cuda::mr::any_resource<cuda::mr::device_accessible>;

[[noreturn]] inline void die(const std::string& why) {
  fprintf(stderr, "rmm: %s\n", why.c_str());
  exit(2);
}

// "key:bytes,key:bytes", as the repository's policies take it.
class Conf {
 public:
  explicit Conf(const std::string& text) {
    std::istringstream pairs(text);
    for (std::string pair; std::getline(pairs, pair, ',');) {
      auto colon = pair.find(':');
      if (colon == std::string::npos) die("no value in " + pair);
      values_[pair.substr(0, colon)] = std::stoull(pair.substr(colon + 1));
    }
  }

  std::optional<std::size_t> get(const std::string& key) const {
    auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::map<std::string, std::size_t> values_;
};

// The defaults are those of RMM's Python classes, and for the bins those of its benchmarks.
inline rmm::mr::pool_memory_resource make_pool(const Conf& conf) {
  auto initial = conf.get("initial_pool_size").value_or(rmm::percent_of_free_device_memory(50));
  return rmm::mr::pool_memory_resource{rmm::mr::cuda_memory_resource{}, initial,
                                       conf.get("maximum_pool_size")};
}

inline Resource make(const std::string& policy, const Conf& conf) {
  if (policy == "rmm_pool") return make_pool(conf);
  if (policy == "rmm_arena")
    return rmm::mr::arena_memory_resource{rmm::mr::cuda_memory_resource{}, conf.get("arena_size")};
  if (policy == "rmm_binning") {
    auto smallest = static_cast<int8_t>(conf.get("min_size_exponent").value_or(18));
    auto largest = static_cast<int8_t>(conf.get("max_size_exponent").value_or(22));
    return rmm::mr::binning_memory_resource{make_pool(conf), smallest, largest};
  }
  die("unknown policy " + policy);
}
