// PyTorch's interface of a CUDA allocator, implemented by the functions of libcoalesce_torch.so.
//
// The class does what only C++ can do: it throws PyTorch's exceptions, keeps the stacks of the history, calls observers,
// and shares memory with other processes. All decisions are those of the library.
#include <cstdlib>
#include <exception>
#include <optional>
#include <unordered_set>

#include "history.h"
#include "interface.h"
#include "processes.h"
#include "shared_memory.h"
#include "torch.h"

namespace coalesce {
namespace {

const Interface* library = nullptr;

uint64_t address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }
uint64_t handle(cudaStream_t stream) { return reinterpret_cast<uint64_t>(stream); }
PoolId id_of(MempoolId_t id) { return {id.first, id.second}; }
MempoolId_t id_of(PoolId id) { return {id.first, id.second}; }

// A failure of the library, which is released with it.
class Failed {
 public:
  explicit Failed(Failure* failure) : failure_(failure) {}
  Failed(const Failed&) = delete;
  Failed& operator=(const Failed&) = delete;
  ~Failed() { library->release_failure(failure_); }

  bool is_out_of_memory() const { return library->failure_is_out_of_memory(failure_); }
  bool figures(Figures* figures) const { return library->failure_figures(failure_, figures); }

  std::string message() const {
    size_t bytes = 0;
    const char* text = library->failure_message(failure_, &bytes);
    return {text, bytes};
  }

  [[noreturn]] void raise(const std::string& message) const {
    TORCH_CHECK_WITH(OutOfMemoryError, !is_out_of_memory(), message);
    TORCH_CHECK(false, message);
    std::abort();  // not reached: the checks throw
  }

 private:
  Failure* failure_;
};

// What a function threw that the library called. Exceptions must not pass through the library, so they wait until it
// returns.
thread_local std::exception_ptr thrown;

template <typename Function, typename Result>
Result without_throwing(Function function, Result otherwise) noexcept {
  try {
    return function();
  } catch (...) {
    if (!thrown) thrown = std::current_exception();
    return otherwise;
  }
}

// Throws the failure of a call, or what was thrown during it.
void check(Outcome outcome) {
  if (outcome == nullptr && !thrown) return;
  const auto exception = std::exchange(thrown, nullptr);
  if (outcome != nullptr) {
    const Failed failed(outcome);
    if (!exception) failed.raise(failed.message());
  }
  std::rethrow_exception(exception);
}

// The stack of the call that this thread is in.
thread_local Context call_context;

class InCall {
 public:
  explicit InCall(Context context) : outer_(std::move(call_context)) { call_context = std::move(context); }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;
  ~InCall() { call_context = std::move(outer_); }

 private:
  Context outer_;
};

void release_block(void* pointer);
void release_uncached(void* pointer);
void take_entry(int device, int action, uint64_t addr, uint64_t size, uint64_t stream, PoolId pool);

// The actions in the order of the library's.
constexpr TraceEntry::Action kActions[] = {
    TraceEntry::ALLOC,         TraceEntry::FREE_REQUESTED, TraceEntry::FREE_COMPLETED,
    TraceEntry::SEGMENT_ALLOC, TraceEntry::SEGMENT_FREE,   TraceEntry::SEGMENT_MAP,
    TraceEntry::SEGMENT_UNMAP, TraceEntry::SNAPSHOT,       TraceEntry::OOM,
};

bool is_caching_disabled() {
  static const bool disabled = [] {
    const char* value = std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
    return value != nullptr && std::string(value) == "1";
  }();
  return disabled;
}

// Lets others free memory: PyTorch's are tensors that other processes have finished to use.
bool collect() {
  const auto execute_all = [] {
    bool freed = false;
    const auto registry = c10::FreeCudaMemoryCallbacksRegistry();
    for (const auto& name : registry->Keys()) freed |= registry->Create(name)->Execute();
    return freed;
  };
  return without_throwing(execute_all, false);
}

const c10::impl::PyInterpreter* tracer() { return c10::impl::GPUTrace::get_trace(); }

// The state of a private pool at one time.
struct Checkpoint final : native::AllocatorState {
  explicit Checkpoint(PoolCheckpoint* taken) : taken(taken) {}
  ~Checkpoint() override { library->release_checkpoint(taken); }
  PoolCheckpoint* const taken;
};

class CudaAllocator final : public native::CUDAAllocator {
 public:
  // --- Allocations

  c10::DataPtr allocate(size_t size) override {
    constexpr size_t kExabyte = size_t{1} << 60;
    TORCH_CHECK_WITH(OutOfMemoryError, size < kExabyte,
                     "CUDA out of memory. Tried to allocate more than 1EB memory.");
    const auto device = c10::cuda::current_device();
    void* result = nullptr;
    if (!is_caching()) {
      result = allocate_uncached(size);
    } else if (size != 0) {
      result = allocate_block(device, size, c10::cuda::getCurrentCUDAStream(device));
    }
    return {result, result, raw_deleter(), c10::Device(c10::DeviceType::CUDA, device)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return is_caching() ? &release_block : &release_uncached; }

  void* raw_alloc(size_t size) override {
    return raw_alloc_with_stream(size, c10::cuda::getCurrentCUDAStream(c10::cuda::current_device()));
  }

  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override {
    if (size == 0) return nullptr;
    return is_caching() ? allocate_block(c10::cuda::current_device(), size, stream) : allocate_uncached(size);
  }

  void raw_delete(void* block) override { is_caching() ? free_block(block) : release_uncached(block); }

  void free_block(void* block) {
    if (block == nullptr) return;
    if (const auto* trace = tracer()) {
      (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, address(block));
    }
    c10::DeviceIndex device = -1;
    uint64_t size = 0;
    const bool is_profiled = c10::memoryProfilingEnabled();
    if (is_profiled || gathers_) std::tie(device, size) = block_of(block);
    {
      InCall call(gather(device, RecordContext::ALL));
      check(library->free(address(block)));
    }
    if (is_profiled) report_usage(device, block, -static_cast<int64_t>(size));
  }

  void recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) override {
    // Memory of another process or of nobody is not ours to track.
    if (block.get() == nullptr || block.get_deleter() != &release_block) return;
    check(library->record_stream(address(block.get()), handle(stream.stream())));
  }

  void* getBaseAllocation(void* block, size_t* size) override {
    const auto [base, bytes] = segment_of(block);
    if (size != nullptr) *size = bytes;
    return base;
  }

  void copy_data(void* to, const void* from, std::size_t count) const override {
    C10_CUDA_CHECK(cudaMemcpy(to, from, count, cudaMemcpyDeviceToDevice));
  }

  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t count,
                          cudaStream_t stream, bool can_access_peer) override {
    if (can_access_peer || to_device == from_device) {
      return cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice, stream);
    }
    // Without peer access only this one copies memory that does not come from cudaMalloc.
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, count, stream);
  }

  // --- The process

  void init(int device_count) override {
    for (int device = static_cast<int>(histories_.size()); device < device_count; ++device) {
      histories_.push_back(std::make_unique<History>(static_cast<c10::DeviceIndex>(device)));
      if (from_start_) histories_.back()->record(*from_start_);
    }
    if (from_start_) listen();
  }

  // Records the history of all devices, which are not known yet.
  void record_from_start(History::Options options) { from_start_ = std::move(options); }

  bool initialized() override { return !histories_.empty(); }
  void enable(bool value) override { is_enabled_ = value; }
  bool isEnabled() const override { return is_enabled_; }
  std::string name() override { return "coalesce"; }

#if TORCH >= 208
  void emptyCache(MempoolId_t pool = {0, 0}) override {
#else
  void emptyCache() override {
    const MempoolId_t pool = {0, 0};
#endif
    for (const auto& history : histories_) {
      InCall call(history->gather(RecordContext::ALL));
      check(library->empty_cache(history->device(), id_of(pool)));
    }
  }

  double getMemoryFraction(c10::DeviceIndex device) override {
    history(device);
    double fraction = 1.0;
    check(library->memory_fraction(device, &fraction));
    return fraction;
  }

  void setMemoryFraction(double fraction, c10::DeviceIndex device) override {
    history(device);
    check(library->set_memory_fraction(device, fraction));
  }

  void cacheInfo(c10::DeviceIndex device, size_t* largest) override {
    uint64_t bytes = 0;
    check(library->largest_free(device, &bytes));
    *largest = std::max<size_t>(*largest, bytes);
  }

  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) override {
    c10::cuda::CUDAGuard guard(device);
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();
    } else {
      C10_CUDA_CHECK(error);
    }
    check(library->open_to_peer(peer, device));
  }

  // --- Statistics

  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    assert_valid(device);
    Stats from{};
    DeviceStats stats;
    check(library->stats(
        device, &from,
        [](void* data, PoolId pool, const PlainStat (*bytes)[3]) {
#if TORCH >= 213
          static_cast<DeviceStats*>(data)->reserved_bytes_by_private_pools[id_of(pool)] = array(*bytes);
#else
          (void)data, (void)pool, (void)bytes;
#endif
        },
        &stats));
    StatArray* const arrays[] = {&stats.allocation,      &stats.segment,        &stats.active,
                                 &stats.inactive_split,  &stats.allocated_bytes, &stats.reserved_bytes,
                                 &stats.active_bytes,    &stats.inactive_split_bytes, &stats.requested_bytes};
    for (size_t i = 0; i < std::size(arrays); ++i) *arrays[i] = array(from.arrays[i]);
    stats.oversize_allocations = stat(from.oversize[0]);
    stats.oversize_segments = stat(from.oversize[1]);
    int64_t* const scalars[] = {&stats.num_alloc_retries,    &stats.num_ooms,        &stats.num_sync_all_streams,
                                &stats.num_device_alloc,     &stats.num_device_free, &stats.max_split_size};
    for (size_t i = 0; i < std::size(scalars); ++i) *scalars[i] = from.scalars[i];
#if TORCH >= 212
    stats.num_oom_rejections = from.num_oom_rejections;
#endif
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    assert_valid(device);
    check(library->reset_accumulated_stats(device));
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    assert_valid(device);
    check(library->reset_peak_stats(device));
  }

  // --- History and snapshots

  bool isHistoryEnabled() override { return history(c10::cuda::current_device()).is_enabled(); }

  void recordHistory(bool enabled, CreateContextFn recorder, size_t max_entries, RecordContext when
#if TORCH >= 208
                     ,
                     bool clear
#endif
#if TORCH >= 211
                     ,
                     const std::vector<std::string>& skip
#endif
                     ) override {
#if TORCH < 208
    const bool clear = false;
#endif
#if TORCH < 211
    const std::vector<std::string> skip;
#endif
    {
      std::lock_guard<std::mutex> lock(annotations_mutex_);
      records_annotations_ = enabled;
      annotations_.set_max_entries(max_entries);
      if (!enabled || clear) annotations_.clear();
    }
    for (const auto& history : histories_) {
      history->record({enabled, recorder, max_entries, when, clear, skip});
    }
    gathers_ = enabled && when != RecordContext::NEVER;
    if (enabled) listen();
  }

  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& metadata) override {
    if (!records_annotations_) return;
    AnnotationEntry entry(c10::cuda::current_device(), c10::getApproximateTime());
    for (const auto& [name, value] : metadata) entry.recordUserMetadata(name, value);
    std::lock_guard<std::mutex> lock(annotations_mutex_);
    annotations_.insert(entry);
  }

#if TORCH >= 208
  void pushCompileContext(std::string& text) override {
    if (records_annotations_) compile_context.push(text);
  }
  void popCompileContext() override {
    if (records_annotations_ && !compile_context.empty()) compile_context.pop();
  }
#endif
#if TORCH >= 210
  void setUserMetadata(const std::string& text) override { user_metadata = text; }
  std::string getUserMetadata() override { return user_metadata; }
#endif
#if TORCH >= 212
  Context getContextForPointer(const void* block) override {
    int device = 0;
    uint64_t size = 0;
    const Outcome outcome = library->block(address(block), &device, &size);
    if (outcome != nullptr) {
      Failed unknown(outcome);
      return nullptr;
    }
    return history(device).of_block(address(block));
  }
#endif
#if TORCH >= 214
  bool supportsUserMetadata() override { return true; }
  void annotateMemory(const void* block, const std::string& text) override {
    const auto [device, size] = block_of(block);
    history(device).annotate(address(block), size, text);
  }
#endif

  void attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) override {
    observers_.push_back(std::move(observer));
  }
#if TORCH >= 212
  void attachOomRejectionObserver(native::OomRejectionObserver observer) override {
    rejection_observers_.push_back(std::move(observer));
  }
#endif

  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override {
    for (const auto& history : histories_) history->track(tracker);
    listen();
  }

#if TORCH >= 211
  native::SnapshotInfo snapshot(MempoolId_t pool = {0, 0}, bool with_traces = true) override {
#elif TORCH >= 208
  native::SnapshotInfo snapshot(MempoolId_t pool = {0, 0}) override {
    const bool with_traces = true;
#else
  native::SnapshotInfo snapshot() override {
    const MempoolId_t pool = {0, 0};
    const bool with_traces = true;
#endif
    native::SnapshotInfo result;
    const auto to_ns = clock_.makeConverter();
    const auto to_unix_us = [&](auto& entry) { entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000; };
    {
      std::lock_guard<std::mutex> lock(annotations_mutex_);
      result.external_annotations = annotations_.in_order();
    }
    for (auto& entry : result.external_annotations) to_unix_us(entry);
    for (const auto& history : histories_) {
      if (with_traces) {
        result.device_traces.push_back(history->entries());
        for (auto& entry : result.device_traces.back()) to_unix_us(entry);
      }
      add_segments(*history, pool, &result.segments);
    }
    add_settings(&result.config_metadata);
    return result;
  }

  // --- Private pools

  void beginAllocateToPool(c10::DeviceIndex device, MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    assert_valid(device);
    using Accepts = std::function<bool(cudaStream_t)>;
    const Filter c_form{
        new Accepts(std::move(filter)),
        [](void* accepts, uint64_t stream) {
          const auto ask = [=] { return (*static_cast<Accepts*>(accepts))(reinterpret_cast<cudaStream_t>(stream)); };
          return without_throwing(ask, false);
        },
        [](void* accepts) { delete static_cast<Accepts*>(accepts); },
    };
    check(library->begin_allocate_to_pool(device, id_of(pool), c_form));
  }

  void endAllocateToPool(c10::DeviceIndex device, MempoolId_t pool) override {
    assert_valid(device);
    check(library->end_allocate_to_pool(device, id_of(pool)));
  }

  void releasePool(c10::DeviceIndex device, MempoolId_t pool) override {
    assert_valid(device);
    check(library->release_pool(device, id_of(pool)));
  }

  int getPoolUseCount(c10::DeviceIndex device, MempoolId_t pool) override {
    assert_valid(device);
    uint64_t users = 0;
    check(library->pool_use_count(device, id_of(pool), &users));
    return static_cast<int>(users);
  }

#if TORCH >= 211
  void createOrIncrefPool(c10::DeviceIndex device, MempoolId_t pool,
                          std::shared_ptr<native::CUDAAllocator> source) override {
#elif TORCH >= 208
  void createOrIncrefPool(c10::DeviceIndex device, MempoolId_t pool, native::CUDAAllocator* source) override {
#else
  void ensureExistsAndIncrefPool(c10::DeviceIndex device, MempoolId_t pool) override {
    native::CUDAAllocator* const source = nullptr;
#endif
    assert_valid(device);
    if (source == nullptr) {
      check(library->create_or_use_pool(device, id_of(pool), nullptr));
      return;
    }
    using Held = std::decay_t<decltype(source)>;
    const Source c_form{
        new Held(std::move(source)),
        [](void* held, uint64_t bytes) { return malloc_from(**static_cast<Held*>(held), bytes); },
        [](void* held, uint64_t segment) {
          const auto free = [=] {
            (*static_cast<Held*>(held))->raw_delete(pointer(segment));
            return true;
          };
          without_throwing(free, false);
        },
        [](void* held) { delete static_cast<Held*>(held); },
    };
    check(library->create_or_use_pool(device, id_of(pool), &c_form));
  }

#if TORCH >= 211
  void setUseOnOOM(c10::DeviceIndex device, MempoolId_t pool, bool use) override {
#elif TORCH >= 208
  void setUseOnOOM(c10::DeviceIndex device, MempoolId_t pool) override {
    const bool use = true;
#endif
#if TORCH >= 208
    assert_valid(device);
    check(library->set_use_on_oom(device, id_of(pool), use));
  }
#endif
#if TORCH >= 210
  void setNoSplit(c10::DeviceIndex device, MempoolId_t pool) override {
    assert_valid(device);
    check(library->set_no_split(device, id_of(pool)));
  }

  std::vector<native::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex device) override {
    assert_valid(device);
    std::vector<native::StreamSegmentSize> sizes;
    check(library->expandable_segments(
        device,
        [](void* data, uint64_t stream, bool is_small, uint64_t mapped_bytes) {
          auto& to = *static_cast<std::vector<native::StreamSegmentSize>*>(data);
          to.emplace_back(reinterpret_cast<cudaStream_t>(stream), is_small, mapped_bytes);
        },
        &sizes));
    return sizes;
  }
#endif

#if TORCH >= 213
  void markCaptureBegin(c10::DeviceIndex device) override { check(library->mark_capture_begin(device)); }
  void markCaptureEnd(c10::DeviceIndex device) override { check(library->mark_capture_end(device)); }
#endif

  bool checkPoolLiveAllocations(c10::DeviceIndex device, MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    std::vector<uint64_t> addresses;
    for (const void* block : expected) addresses.push_back(address(block));
    bool are = false;
    check(library->pool_live_allocations_are(device, id_of(pool), addresses.data(), addresses.size(), &are));
    return are;
  }

  std::shared_ptr<native::AllocatorState> getCheckpointState(c10::DeviceIndex device, MempoolId_t pool) override {
    InCall call(gather(device, RecordContext::STATE));
    PoolCheckpoint* taken = nullptr;
    check(library->checkpoint_pool(device, id_of(pool), &taken));
    return std::make_shared<Checkpoint>(taken);
  }

  native::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device,
                                                 std::shared_ptr<native::AllocatorState> state) override {
    const auto checkpoint = std::dynamic_pointer_cast<Checkpoint>(state);
    TORCH_CHECK(checkpoint, "Expected PrivatePoolState");
    InCall call(gather(device, RecordContext::STATE));
    struct Target {
      native::CheckpointDelta delta;
      c10::Device device;
    } target{{}, c10::Device(c10::DeviceType::CUDA, device)};
    check(library->restore_pool(
        device, checkpoint->taken,
        [](void* data, uint64_t freed) { static_cast<Target*>(data)->delta.ptrs_freed.push_back(pointer(freed)); },
        [](void* data, uint64_t addr) {
          auto& to = *static_cast<Target*>(data);
          to.delta.dataptrs_allocd.emplace_back(pointer(addr), pointer(addr), &release_block, to.device);
        },
        &target));
    return std::move(target.delta);
  }

  // --- Other processes

  native::ShareableHandle shareIpcHandle(void* block) override {
    uint64_t start = 0;
    std::vector<SharedPage> pages;
    check(library->share(
        address(block), &start,
        [](void* data, const SharedPage* page) { static_cast<std::vector<SharedPage>*>(data)->push_back(*page); },
        &pages));
    const auto offset = static_cast<ptrdiff_t>(address(block) - start);
    if (pages.empty()) return {offset, SharedMemory::handle_of(pointer(start))};
    return {offset, SharedPages(std::move(pages)).handle()};
  }

  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    const auto device = c10::cuda::current_device();
    return shared_.open(handle, [device](const SharedPages& shared) {
      OpenedPages* opened = nullptr;
      uint64_t start = 0;
      const auto& pages = shared.pages;
      check(library->open_pages(device, pages.data(), pages.size(), &opened, &start));
      const auto close = [=] { check(library->close_pages(device, opened)); };
      return SharedMemory::Opened{pointer(start), close};
    });
  }

  // The history of a device.
  History& history(c10::DeviceIndex device) {
    assert_valid(device);
    return *histories_[static_cast<size_t>(device)];
  }

 private:
  bool is_caching() const { return is_enabled_ && !is_caching_disabled(); }

  void assert_valid(c10::DeviceIndex device) const {
    TORCH_CHECK(0 <= device && static_cast<size_t>(device) < histories_.size(),
                "Invalid device argument " + std::to_string(device) + ": did you call init?");
  }

  // The stack of a call, if stacks of this kind are recorded.
  Context gather(c10::DeviceIndex device, RecordContext level) {
    return gathers_ ? history(device).gather(level) : nullptr;
  }

  void* allocate_block(c10::DeviceIndex device, size_t size, cudaStream_t stream) {
    History& of_device = history(device);
    uint64_t result = 0;
    Outcome outcome = nullptr;
    {
      InCall call(gather(device, RecordContext::STATE));
      outcome = library->malloc(device, size, handle(stream), &collect, &result);
    }
    if (thrown) check(outcome);
    if (outcome != nullptr) report_failure(device, size, Failed(outcome));
    void* const block = pointer(result);
    if (const auto* trace = tracer()) {
      (*trace)->trace_gpu_memory_allocation(c10::kCUDA, result);
    }
    const bool is_profiled = c10::memoryProfilingEnabled();
    if (is_profiled || of_device.has_segment_stacks()) {
      const auto [owner, bytes] = block_of(block);
      of_device.note_block(result, bytes);
      if (is_profiled) report_usage(owner, block, static_cast<int64_t>(bytes));
    }
    return block;
  }

  void* allocate_uncached(size_t size) {
    void* result = nullptr;
    C10_CUDA_CHECK(cudaMalloc(&result, size));
    if (const auto* trace = tracer()) {
      (*trace)->trace_gpu_memory_allocation(c10::kCUDA, address(result));
    }
    return result;
  }

  // Calls the observers and throws.
  [[noreturn]] void report_failure(c10::DeviceIndex device, size_t size, const Failed& failed) {
    Figures figures{};
    if (failed.figures(&figures)) {
      const auto [allocated, reserved] = usage(device);
      const auto where = c10::Device(c10::DeviceType::CUDA, device);
      c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), allocated, reserved, where);
      for (const auto& observer : observers_) {
        observer(device, figures.segment, figures.allowed, figures.device_free);
      }
    }
#if TORCH >= 212
    else if (failed.is_out_of_memory()) {
      const auto [free, total] = getMemoryInfo(device);
      const auto [allocated, reserved] = usage(device);
      for (const auto& observer : rejection_observers_) {
        observer(device, size, static_cast<size_t>(reserved), total);
      }
      (void)free, (void)allocated;
    }
#endif
    failed.raise(with_processes(failed.message(), device));
  }

  std::pair<c10::DeviceIndex, uint64_t> block_of(const void* block) {
    int device = 0;
    uint64_t bytes = 0;
    check(library->block(address(block), &device, &bytes));
    return {static_cast<c10::DeviceIndex>(device), bytes};
  }

  std::pair<void*, size_t> segment_of(void* block) {
    uint64_t base = 0;
    uint64_t bytes = 0;
    check(library->base_allocation(address(block), &base, &bytes));
    return {pointer(base), bytes};
  }

  // Allocated and reserved bytes.
  std::pair<int64_t, int64_t> usage(c10::DeviceIndex device) {
    const auto stats = getDeviceStats(device);
    const auto all = static_cast<size_t>(StatType::AGGREGATE);
    return {stats.allocated_bytes[all].current, stats.reserved_bytes[all].current};
  }

  void report_usage(c10::DeviceIndex device, void* block, int64_t change) {
    const auto [allocated, reserved] = usage(device);
    const auto where = c10::Device(c10::DeviceType::CUDA, device);
    c10::reportMemoryUsageToProfiler(block, change, allocated, reserved, where);
  }

  void listen() { check(library->listen(&take_entry)); }

  static uint64_t malloc_from(native::CUDAAllocator& source, uint64_t bytes) {
    try {
      return address(source.raw_alloc(bytes));
    } catch (...) {
      return 0;  // the library then raises the error of a device without memory
    }
  }

  static Stat stat(const PlainStat& from) {
    Stat to;
    to.current = from.current;
    to.peak = from.peak;
    to.allocated = from.allocated;
    to.freed = from.freed;
    return to;
  }

  // All pools, the small and the large ones: the order of StatType.
  static StatArray array(const PlainStat (&from)[3]) { return {stat(from[0]), stat(from[1]), stat(from[2])}; }

  void add_segments(History& history, MempoolId_t pool, std::vector<SegmentInfo>* segments) {
    struct Target {
      History& history;
      std::vector<SegmentInfo>* segments;
    } target{history, segments};
    const SnapshotSink sink{
        &target,
        [](void* data, const Segment* from) {
          auto& to = *static_cast<Target*>(data);
          SegmentInfo segment;
          segment.device = to.history.device();
#if TORCH >= 211
          segment.registration_counter = to.history.number_of_segment(from->address, from->total_size);
#endif
          segment.address = from->address;
          segment.total_size = from->total_size;
          segment.requested_size = from->requested_size;
          segment.allocated_size = from->allocated_size;
          segment.active_size = from->active_size;
          segment.stream = reinterpret_cast<cudaStream_t>(from->stream);
          segment.is_large = from->is_large;
          segment.is_expandable = from->is_expandable;
          segment.owner_private_pool_id = id_of(from->pool);
          segment.context_when_allocated = to.history.of_segment(from->address);
          to.segments->push_back(std::move(segment));
        },
        [](void* data, const Block* from) {
          auto& to = *static_cast<Target*>(data);
          BlockInfo block;
          block.size = from->size;
          block.requested_size = from->requested_size;
          block.allocated = from->is_allocated;
          block.active = from->is_active;
          block.context_when_allocated = to.history.of_block(from->address);
          to.segments->back().blocks.push_back(std::move(block));
        },
    };
    check(library->snapshot(history.device(), id_of(pool), sink));
  }

  static void add_settings(native::AllocatorConfigInfo* to) {
    Settings from{};
    check(library->settings(&from));
    to->garbage_collection_threshold = from.garbage_collection_threshold;
    to->max_split_size = from.max_split_size;
    to->roundup_power2_divisions.assign(std::begin(from.roundup_power2_divisions),
                                        std::end(from.roundup_power2_divisions));
    to->expandable_segments = from.expandable_segments;
    to->release_lock_on_malloc = from.release_lock_on_cudamalloc;
#if TORCH >= 209
    to->graph_capture_record_stream_reuse = from.graph_capture_record_stream_reuse;
#endif
    to->last_allocator_settings = from.source;
    library->release_text(from.source);
    // The host allocator is PyTorch's own.
    using HostConfig = native::CUDAAllocatorConfig;
    to->pinned_num_register_threads = HostConfig::pinned_num_register_threads();
    to->pinned_use_host_register = HostConfig::pinned_use_cuda_host_register();
  }

  bool is_enabled_ = true;
  std::optional<History::Options> from_start_;
  std::vector<std::unique_ptr<History>> histories_;
  // Whether stacks are recorded.
  std::atomic<bool> gathers_{false};
  std::vector<native::OutOfMemoryObserver> observers_;
#if TORCH >= 212
  std::vector<native::OomRejectionObserver> rejection_observers_;
#endif
  std::atomic<bool> records_annotations_{false};
  std::mutex annotations_mutex_;
  Ring<AnnotationEntry> annotations_;
  c10::ApproximateClockToUnixTimeConverter clock_;
  SharedMemory shared_;
};

// Lives until the process ends: tensors may be freed until then.
CudaAllocator* allocator = nullptr;

void release_block(void* block) { allocator->free_block(block); }

void release_uncached(void* block) {
  if (const auto* trace = tracer()) {
    (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, address(block));
  }
  C10_CUDA_CHECK(cudaFree(block));
}

void take_entry(int device, int action, uint64_t addr, uint64_t size, uint64_t stream, PoolId pool) {
  const auto take = [=] {
    auto& history = allocator->history(static_cast<c10::DeviceIndex>(device));
    history.take(kActions[action], addr, size, stream, id_of(pool), call_context);
    return true;
  };
  without_throwing(take, false);
}

}  // namespace
}  // namespace coalesce

// Makes the library PyTorch's allocator. Returns null, or why it cannot be.
//
// `history_entries`, if not negative, is how many entries of the history are kept from the start.
extern "C" const char* coalesce_install(const coalesce::Interface* library, int64_t history_entries) {
  using namespace coalesce;
  if (library->version != kVersion || library->bytes != sizeof(Interface)) {
    return "libcoalesce_torch.so is of another version than the Python package coalesce_torch";
  }
  if (native::allocator.load()->initialized()) {
    return "PyTorch has used its own allocator already: call coalesce_torch.enable() before the first use of CUDA";
  }
  coalesce::library = library;
  allocator = new CudaAllocator();
  if (history_entries >= 0) {
    allocator->record_from_start({true, nullptr, static_cast<size_t>(history_entries), RecordContext::NEVER, false, {}});
  }
  library->follow_current_stream([](int device) {
    return handle(c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)));
  });
  native::allocator.store(allocator);
  c10::SetAllocator(c10::DeviceType::CUDA, allocator);
  return nullptr;
}
