// The C interface of libcoalesce_torch.so, as allocator/torch/src/cuda_allocator.rs defines it. Sizes are in bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coalesce {

inline constexpr uint32_t kVersion = 2;

struct Failure;
using Outcome = Failure*;  // null, or a failure to release

struct PoolId {
  uint64_t first;
  uint64_t second;
};

struct Figures {
  int64_t device;
  uint64_t segment;
  uint64_t allowed;
  uint64_t device_free;
};

struct Settings {
  double garbage_collection_threshold;
  uint64_t max_split_size;
  uint64_t roundup_power2_divisions[16];
  bool expandable_segments;
  bool release_lock_on_cudamalloc;
  bool graph_capture_record_stream_reuse;
  char* source;
};

struct PlainStat {
  int64_t current;
  int64_t peak;
  int64_t allocated;
  int64_t freed;
};

struct Stats {
  PlainStat arrays[9][3];
  PlainStat oversize[2];
  int64_t scalars[6];
  int64_t num_oom_rejections;
};

struct Segment {
  uint64_t address;
  uint64_t total_size;
  uint64_t requested_size;
  uint64_t allocated_size;
  uint64_t active_size;
  uint64_t stream;
  PoolId pool;
  bool is_large;
  bool is_expandable;
};

struct Block {
  uint64_t address;
  uint64_t size;
  uint64_t requested_size;
  bool is_allocated;
  bool is_active;
};

// What another process needs to get a page.
struct SharedPage {
  uint64_t bytes;
  int file;  // -1 if the page has a name over a fabric
  unsigned char name[64];
};

// None of the functions in these may throw.
struct Filter {
  void* data;
  bool (*accepts)(void* data, uint64_t stream);
  void (*drop)(void* data);
};

struct Source {
  void* data;
  uint64_t (*malloc)(void* data, uint64_t bytes);
  void (*free)(void* data, uint64_t addr);
  void (*drop)(void* data);
};

struct SnapshotSink {
  void* data;
  void (*segment)(void* data, const Segment*);
  void (*block)(void* data, const Block*);
};

struct OpenedPages;
struct PoolCheckpoint;
using TakeExpandableSegment = void (*)(void* data, uint64_t stream, bool is_small, uint64_t mapped_bytes);
using TakePage = void (*)(void* data, const SharedPage*);
using TakeAddress = void (*)(void* data, uint64_t addr);
using TakePool = void (*)(void* data, PoolId, const PlainStat (*)[3]);
using TakeEntry = void (*)(int device, int action, uint64_t addr, uint64_t size, uint64_t stream, PoolId);

struct Interface {
  uint32_t version;
  uint32_t bytes;

  const char* (*failure_message)(const Failure*, size_t* bytes);
  bool (*failure_is_out_of_memory)(const Failure*);
  bool (*failure_figures)(const Failure*, Figures*);
  void (*release_failure)(Failure*);

  Outcome (*malloc)(int device, uint64_t bytes, uint64_t stream, bool (*collect)(), uint64_t* addr);
  Outcome (*free)(uint64_t addr);
  Outcome (*block)(uint64_t addr, int* device, uint64_t* bytes);
  Outcome (*record_stream)(uint64_t addr, uint64_t stream);
  Outcome (*base_allocation)(uint64_t addr, uint64_t* base, uint64_t* bytes);

  Outcome (*share)(uint64_t addr, uint64_t* start, TakePage, void* data);
  Outcome (*open_pages)(int device, const SharedPage*, size_t count, OpenedPages**, uint64_t* addr);
  Outcome (*close_pages)(int device, OpenedPages*);

  Outcome (*empty_cache)(int device, PoolId);
  Outcome (*memory_fraction)(int device, double*);
  Outcome (*set_memory_fraction)(int device, double);
  Outcome (*largest_free)(int device, uint64_t*);
  Outcome (*open_to_peer)(int device, int peer);
  Outcome (*settings)(Settings*);
  void (*release_text)(char*);

  Outcome (*stats)(int device, Stats*, TakePool, void* data);
  Outcome (*reset_peak_stats)(int device);
  Outcome (*reset_accumulated_stats)(int device);
  Outcome (*listen)(TakeEntry);
  Outcome (*expandable_segments)(int device, TakeExpandableSegment, void* data);
  Outcome (*snapshot)(int device, PoolId, SnapshotSink);

  Outcome (*create_or_use_pool)(int device, PoolId, const Source*);
  Outcome (*begin_allocate_to_pool)(int device, PoolId, Filter);
  Outcome (*end_allocate_to_pool)(int device, PoolId);
  Outcome (*release_pool)(int device, PoolId);
  Outcome (*pool_use_count)(int device, PoolId, uint64_t*);
  Outcome (*set_use_on_oom)(int device, PoolId, bool);
  Outcome (*set_no_split)(int device, PoolId);

  void (*follow_current_stream)(uint64_t (*current)(int device));
  Outcome (*mark_capture_begin)(int device);
  Outcome (*mark_capture_end)(int device);
  Outcome (*pool_live_allocations_are)(int device, PoolId, const uint64_t* addresses, size_t count, bool* are);
  Outcome (*checkpoint_pool)(int device, PoolId, PoolCheckpoint**);
  void (*release_checkpoint)(PoolCheckpoint*);
  Outcome (*restore_pool)(int device, const PoolCheckpoint*, TakeAddress freed, TakeAddress allocated, void* data);
};

}  // namespace coalesce
