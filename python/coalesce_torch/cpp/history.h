// The history of a device with its stacks: what PyTorch calls the trace, its ring buffer, and the stack of each live
// block and segment.
//
// The allocator sends its entries to `take`, in the thread and in the middle of the call that causes them. The stack
// of that call was gathered before it, because gathering may need the lock of the interpreter.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <stack>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "interface.h"
#include "torch.h"

namespace coalesce {

// A ring buffer of PyTorch's. Shrinking it does not drop the entries beyond its new end.
template <typename T>
class Ring {
 public:
  void set_max_entries(size_t entries) { max_entries_ = std::max(size_t{1}, entries); }

  void insert(const T& entry) {
    if (entries_.size() < max_entries_) {
      entries_.push_back(entry);
      return;
    }
    entries_[next_++] = entry;
    if (next_ == max_entries_) next_ = 0;
  }

  std::vector<T> in_order() const {
    std::vector<T> result(entries_.begin() + static_cast<std::ptrdiff_t>(next_), entries_.end());
    result.insert(result.end(), entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(next_));
    return result;
  }

  void clear() {
    entries_.clear();
    next_ = 0;
  }

 private:
  size_t max_entries_ = 1;
  size_t next_ = 0;
  std::vector<T> entries_;
};

class History {
 public:
  struct Options {
    bool enabled;
    CreateContextFn recorder;
    size_t max_entries;
    RecordContext when;
    bool clear;
    std::vector<std::string> skip;
  };

  explicit History(c10::DeviceIndex device) : device_(device) {}

  void record(const Options& options);
  void track(AllocatorTraceTracker tracker);
  bool is_enabled() const { return enabled_; }
  c10::DeviceIndex device() const { return device_; }

  // Gathers the stack of a call if stacks of this kind are recorded. Must be called without any lock.
  Context gather(RecordContext level) const {
    return level_ >= level && recorder_ != nullptr ? recorder_() : nullptr;
  }

  // Receives an entry of the allocator. `call` is the stack of the call that caused it.
  void take(TraceEntry::Action action, uint64_t addr, uint64_t size, uint64_t stream, MempoolId_t pool,
            const Context& call);

#if TORCH >= 214
  // Attaches a text to a live block.
  void annotate(uint64_t addr, uint64_t size, const std::string& text);
#endif

  // Whether there is a stack that a split could move.
  bool has_segment_stacks() const { return has_segment_stacks_; }
  // A block was allocated: its segment, if this is its first block, loses its stack when it is split.
  void note_block(uint64_t addr, uint64_t size);

  std::vector<TraceEntry> entries() const;
  Context of_block(uint64_t addr) const;
  Context of_segment(uint64_t addr) const;
  // The place of a segment in the order of creation. Segments that were created before this was listened to are
  // numbered when they are first asked for. NCCL registers memory in this order.
  int32_t number_of_segment(uint64_t addr, uint64_t size);

 private:
  // What is known of a segment, by its address.
  struct Known {
    uint64_t size;
    Context context;
    int32_t number;
  };

  Context stack_of(TraceEntry::Action action, uint64_t addr, uint64_t size, const Context& call);

  const c10::DeviceIndex device_;
  // Recursive like PyTorch's: a tracker may ask for the entries.
  mutable std::recursive_mutex mutex_;
  bool enabled_ = false;
  std::atomic<CreateContextFn> recorder_{nullptr};
  std::atomic<RecordContext> level_{RecordContext::NEVER};
  std::unordered_set<int> skipped_;
  Ring<TraceEntry> ring_;
  std::vector<AllocatorTraceTracker> trackers_;
  std::unordered_map<uint64_t, Context> blocks_;
  std::map<uint64_t, Known> segments_;
  int32_t segments_created_ = 0;
  std::atomic<bool> has_segment_stacks_{false};
};

// What a thread attaches to its entries.
inline thread_local std::stack<std::string> compile_context;
inline thread_local std::string user_metadata;

inline void History::record(const Options& options) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  TORCH_CHECK(options.when == RecordContext::NEVER || options.recorder);
  enabled_ = options.enabled;
  recorder_ = enabled_ ? options.recorder : nullptr;
  level_ = enabled_ ? options.when : RecordContext::NEVER;
  ring_.set_max_entries(options.max_entries);
  if (!enabled_ || options.clear) ring_.clear();
  skipped_.clear();
#if TORCH >= 211
  for (const auto& name : options.skip) {
    skipped_.insert(c10::CachingDeviceAllocator::parseTraceEntryAction(name));
  }
#endif
}

inline void History::track(AllocatorTraceTracker tracker) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  trackers_.push_back(std::move(tracker));
}

inline void History::take(TraceEntry::Action action, uint64_t addr, uint64_t size, uint64_t stream,
                          MempoolId_t pool, const Context& call) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  Context context = stack_of(action, addr, size, call);
  if (!enabled_ && trackers_.empty()) return;
  if (level_ < RecordContext::ALLOC) context = nullptr;
  const auto time = c10::getApproximateTime();
  const auto handle = reinterpret_cast<cudaStream_t>(stream);
#if TORCH >= 208
  const std::string compiled = compile_context.empty() ? "N/A" : compile_context.top();
#endif
#if TORCH >= 210
  TraceEntry entry(action, device_, addr, size, handle, pool, time, std::move(context), compiled, user_metadata);
#elif TORCH >= 208
  TraceEntry entry(action, device_, addr, size, handle, pool, time, std::move(context), compiled);
#else
  TraceEntry entry(action, device_, addr, size, handle, time, std::move(context));
#endif
  for (const auto& tracker : trackers_) tracker(entry);
  if (enabled_ && skipped_.count(action) == 0) ring_.insert(entry);
}

#if TORCH >= 214
inline void History::annotate(uint64_t addr, uint64_t size, const std::string& text) {
  const std::string outer = std::exchange(user_metadata, text);
  take(TraceEntry::ANNOTATE, addr, size, 0, {0, 0}, nullptr);
  user_metadata = outer;
}
#endif

// The stack of an entry. Of a block it is that of the call, otherwise that of the block's allocation.
inline Context History::stack_of(TraceEntry::Action action, uint64_t addr, uint64_t size, const Context& call) {
  switch (action) {
    case TraceEntry::ALLOC:
      if (call) blocks_[addr] = call;
      return call;
    case TraceEntry::FREE_REQUESTED:
      return call ? call : of_block(addr);
    case TraceEntry::FREE_COMPLETED: {
      Context context = call ? call : of_block(addr);
      blocks_.erase(addr);
      return context;
    }
    case TraceEntry::SEGMENT_ALLOC:
    case TraceEntry::SEGMENT_MAP:
      segments_.insert_or_assign(addr, Known{size, call, segments_created_++});
      if (call) has_segment_stacks_ = true;
      return call;
    case TraceEntry::SEGMENT_FREE:
    case TraceEntry::SEGMENT_UNMAP: {
      Context context = call ? call : of_segment(addr);
      segments_.erase(addr);
      return context;
    }
    default:
      return call;
  }
}

// PyTorch keeps a segment's stack with its first block, and with the rest of it after a split. What remains of a
// segment's stack in a snapshot is that of segments that were never split.
inline void History::note_block(uint64_t addr, uint64_t size) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  const auto known = segments_.find(addr);
  if (known != segments_.end() && size < known->second.size) known->second.context = nullptr;
}

inline std::vector<TraceEntry> History::entries() const {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  return ring_.in_order();
}

inline Context History::of_block(uint64_t addr) const {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  const auto found = blocks_.find(addr);
  return found == blocks_.end() ? nullptr : found->second;
}

inline Context History::of_segment(uint64_t addr) const {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  const auto found = segments_.find(addr);
  return found == segments_.end() ? nullptr : found->second.context;
}

inline int32_t History::number_of_segment(uint64_t addr, uint64_t size) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  const auto [known, is_new] = segments_.try_emplace(addr, Known{size, nullptr, segments_created_});
  if (is_new) ++segments_created_;
  return known->second.number;
}

}  // namespace coalesce
