// Prints digests of the orders in which PyTorch's hash table iterates over keys, after each of many insertions and
// removals. The allocator's unit test of `flat_hash.rs` has them, and makes the same insertions and removals.
//
//     g++ -std=c++17 -O2 -I TORCH/include flat_hash_orders.cpp -o orders && ./orders
#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <cstdio>

namespace {

struct Identity {
  size_t operator()(uint64_t key) const {
    return key;
  }
};

// splitmix64
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t end) {
    return next() % end;
  }
};

// The factor that undoes the multiplication of Fibonacci hashing.
uint64_t inverse() {
  uint64_t result = 11400714819323198485u;
  for (int i = 0; i < 6; ++i)
    result *= 2 - 11400714819323198485u * result;
  return result;
}

// Of streams, or with 12 bits that decide the slot and are alike in many keys.
uint64_t draw(Random& random, uint64_t run) {
  if (run % 2 == 0)
    return random.below(4 + 4 * run) << 12;
  uint64_t slot = random.below(8) << 9 | random.below(1 + run % 5) << 6 | random.below(1 + run);
  return (slot << 52) * inverse();
}

} // namespace

int main() {
  for (uint64_t run = 0; run < 32; ++run) {
    Random random{run};
    ska::flat_hash_set<uint64_t, Identity> set;
    uint64_t digest = 0xcbf29ce484222325;
    for (int i = 0; i < 400; ++i) {
      bool inserts = random.below(8) < 5;
      uint64_t key = draw(random, run);
      if (inserts)
        set.insert(key);
      else
        set.erase(key);
      for (uint64_t found : set)
        digest = (digest ^ found) * 0x100000001b3;
      digest = (digest ^ set.size()) * 0x100000001b3;
    }
    std::printf("0x%016llx,\n", static_cast<unsigned long long>(digest));
  }
}
