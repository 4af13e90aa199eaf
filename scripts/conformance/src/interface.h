// The allocator's calls whose form differs between releases of PyTorch, by one name each.
// A call takes the first form that compiles with the headers of the release: the overload
// with `int`, then the one with `long`, then the one with `...`.
#pragma once
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#if __has_include(<c10/cuda/PeerToPeerAccess.h>)
#include <c10/cuda/PeerToPeerAccess.h>
#endif

#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// Exported by libc10_cuda.so; libtorch_cuda.so calls it in CUDAHooks::init. The
// allocator's event path (record_stream) throws unless it has been set.
namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*func)(c10::DeviceIndex));
}

// Declared for releases without them, so that the names below can be looked up.
namespace c10::CachingDeviceAllocator {}
namespace c10::CachingAllocator {}

namespace ca = c10::cuda::CUDACachingAllocator;

namespace names {  // types that moved from one namespace to another
using namespace c10::CachingDeviceAllocator;
using namespace c10::CachingAllocator;
using namespace c10::cuda::CUDACachingAllocator;
}  // namespace names
using names::DeviceStats;
using names::Stat;
using names::StatArray;
using names::TraceEntry;

using Pool = std::pair<unsigned long long, unsigned long long>;
using Strings = std::vector<std::string>;

// ------------------------------------------------------ forms of one call --
template <class A>
auto snapshot(A* a, bool traces, int) -> decltype(a->snapshot(Pool{}, traces)) {
  return a->snapshot(Pool{}, traces);
}
template <class A>
auto snapshot(A* a, bool, long) -> decltype(a->snapshot()) {
  return a->snapshot();
}

template <class A>
auto record_history(A* a, size_t n, int)
    -> decltype(a->recordHistory(true, nullptr, n, names::RecordContext::NEVER, true, Strings())) {
  return a->recordHistory(true, nullptr, n, names::RecordContext::NEVER, true, Strings());
}
template <class A>
auto record_history(A* a, size_t n, long)
    -> decltype(a->recordHistory(true, nullptr, n, names::RecordContext::NEVER, true)) {
  return a->recordHistory(true, nullptr, n, names::RecordContext::NEVER, true);
}
template <class A>
auto record_history(A* a, size_t n, long)
    -> decltype(a->recordHistory(true, nullptr, n, names::RecordContext::NEVER)) {
  return a->recordHistory(true, nullptr, n, names::RecordContext::NEVER);
}

// ------------------------------------------- calls that older releases lack --
// Each returns whether the release has it, and does it if `run` is set.
template <class A>
auto set_use_on_oom(A* a, Pool p, bool on, bool run, int)
    -> decltype(a->setUseOnOOM(0, p, on), true) {
  if (run) a->setUseOnOOM(0, p, on);
  return true;
}
// Some releases have no flag: they cannot switch it off again.
template <class A>
auto set_use_on_oom(A* a, Pool p, bool on, bool run, long) -> decltype(a->setUseOnOOM(0, p), true) {
  if (run && on) a->setUseOnOOM(0, p);
  return on;
}
template <class A>
bool set_use_on_oom(A*, Pool, bool, bool, ...) {
  return false;
}

template <class A>
auto set_no_split(A* a, Pool p, bool run, int) -> decltype(a->setNoSplit(0, p), true) {
  if (run) a->setNoSplit(0, p);
  return true;
}
template <class A>
bool set_no_split(A*, Pool, bool, long) {
  return false;
}

template <class A>
auto empty_pool(A* a, Pool p, bool run, int) -> decltype(a->emptyCache(p), true) {
  if (run) a->emptyCache(p);
  return true;
}
template <class A>
bool empty_pool(A*, Pool, bool, long) {
  return false;
}

template <class A>
auto mark_capture(A* a, bool begin, bool run, int) -> decltype(a->markCaptureBegin(0), true) {
  if (run && begin) a->markCaptureBegin(0);
  if (run && !begin) a->markCaptureEnd(0);
  return true;
}
template <class A>
bool mark_capture(A*, bool, bool, long) {
  return false;
}

// ------------------------------------------------- functions and statistics --
// In releases without them, the calls below find these. The arguments fit the real ones better.
struct Missing {};
namespace c10::cuda::detail {
inline Missing init_p2p_access_cache(const double&) { return {}; }
}  // namespace c10::cuda::detail
namespace c10::cuda::CUDACachingAllocator {
inline Missing setExpandableSegmentReserveClassForStream(const void*, const std::string&) {
  return {};
}
}  // namespace c10::cuda::CUDACachingAllocator

inline bool set_reserve_class(cudaStream_t stream, const std::string& name, bool run) {
  auto set = [&] { return ca::setExpandableSegmentReserveClassForStream(stream, name); };
  if (run) set();
  return !std::is_same_v<decltype(set()), Missing>;
}

// A pointer to the statistic; null in releases without it.
template <class S>
auto oom_rejections(const S& s, int) -> decltype(&s.num_oom_rejections) {
  return &s.num_oom_rejections;
}
template <class S>
const int64_t* oom_rejections(const S&, long) {
  return nullptr;
}
template <class S>
auto reserved_by_pool(const S& s, int) -> decltype(&s.reserved_bytes_by_private_pools) {
  return &s.reserved_bytes_by_private_pools;
}
template <class S>
const std::map<Pool, StatArray>* reserved_by_pool(const S&, long) {
  return nullptr;
}
