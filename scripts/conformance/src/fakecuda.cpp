// Fake CUDA runtime + driver: a deterministic simulated device for machines
// without a GPU. No device memory exists; device addresses are only numbers.
//
// Environment (read once, at first use):
//   FAKE_TOTAL_BYTES   capacity; suffixes K M G T (binary). Default 80G.
//   FAKE_FOREIGN_BYTES bytes taken by "other processes". Default 0.
//   FAKE_ADDR          up (default) | down | firstfit: address policy, below.
//   FAKE_ADDR_BASE     first address, default 0x20000000000 (up, firstfit)
//                      or 0x7f0000000000 (down).
//   FAKE_HOLD_EVENTS   1: events start in hold mode.
//   FAKE_FREE_SYNCS    1: cudaFree completes all pending events (as the real
//                      one in effect does). Default 0.
//   FAKE_DEVICE_COUNT  default 1 (all devices share one capacity each).
//   FAKE_CC            compute capability, default 9.0
//   FAKE_MALLOC_NS FAKE_FREE_NS FAKE_MAP_NS FAKE_UNMAP_NS
//                      busy-wait that long in cudaMalloc / cudaFree /
//                      (cuMemCreate+cuMemMap) / (cuMemUnmap). Default 0.
//   FAKE_LOG           path: append the call log there at exit.
//   FAKE_TRACE_STUBS   1: print the name of every generated stub called once.
//   FAKE_BOOL          0 (default) or 1: what a copy of one single byte from the
//                      device to the host reads as (mask.all() and the like).
//
// Address policy. One counter serves cudaMalloc and cuMemAddressReserve.
//   len = size rounded up to 2 MiB
//   up:       addr = next;            next += len;   never reused
//   down:     next -= len;            addr = next;   never reused
//   firstfit: lowest free range that is large enough; freed ranges are reused
// Capacity: cudaMalloc charges len; cuMemCreate charges its size; a call that
// would bring used + foreign above total fails and changes nothing.
#include <cuda.h>
#include <cuda_runtime_api.h>
#undef cudaGetDeviceProperties
#include <time.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "fakecuda.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr uint64_t kGran = 2ull << 20;

uint64_t env_u64(const char* name, uint64_t dflt) {
  const char* s = getenv(name);
  if (!s || !*s) return dflt;
  char* end = nullptr;
  double mul = 1;
  unsigned long long v = strtoull(s, &end, 0);
  double frac = 0;
  if (*end == '.') {
    frac = strtod(end, &end);
  }
  switch (*end) {
    case 'k':
    case 'K':
      mul = 1024.0;
      break;
    case 'm':
    case 'M':
      mul = 1024.0 * 1024;
      break;
    case 'g':
    case 'G':
      mul = 1024.0 * 1024 * 1024;
      break;
    case 't':
    case 'T':
      mul = 1024.0 * 1024 * 1024 * 1024;
      break;
    default:
      break;
  }
  return v * (uint64_t)mul + (uint64_t)(frac * mul);
}

uint64_t now_ns() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}
void spin(uint64_t ns) {
  if (!ns) return;
  uint64_t t = now_ns() + ns;
  while (now_ns() < t) {
  }
}

struct FakeEvent {
  void* stream = nullptr;
  uint64_t ticket = 0;  // 0: never recorded
  uint64_t t_ns = 0;
  int device = 0;
};
struct StreamState {
  uint64_t recorded = 0;
  uint64_t completed = 0;
};
struct Handle {
  uint64_t size;
  int refs;
  int device;
};

struct Fake {
  std::mutex mu;
  uint64_t total[16], foreign, used[16] = {};
  uint64_t peak_used = 0;
  int device_count;
  int policy;  // 0 up, 1 down, 2 firstfit
  uint64_t next;
  std::map<uint64_t, uint64_t> free_ranges;  // firstfit
  struct M {
    uint64_t len;
    int device;
  };
  std::unordered_map<uint64_t, M> mallocs;  // addr -> charged len
  std::unordered_map<uint64_t, uint64_t> reservations;
  std::unordered_map<uint64_t, Handle> handles;
  std::unordered_map<uint64_t, uint64_t> mappings;  // addr -> handle
  uint64_t next_handle = 1;
  uint64_t next_stream = 0;
  bool hold, free_syncs;
  int boolean;
  uint64_t fail_next = 0;
  std::unordered_map<void*, StreamState> streams;
  fakecuda_counters_t c{};
  uint64_t malloc_ns, free_ns, map_ns, unmap_ns;
  bool log = false;
  std::string logbuf;
  std::string logpath;
  int cc_major = 9, cc_minor = 0;

  Fake() {
    uint64_t t = env_u64("FAKE_TOTAL_BYTES", 80ull << 30);
    for (auto& x : total) x = t;
    foreign = env_u64("FAKE_FOREIGN_BYTES", 0);
    device_count = (int)env_u64("FAKE_DEVICE_COUNT", 1);
    if (device_count > 16) device_count = 16;
    const char* p = getenv("FAKE_ADDR");
    policy = !p ? 0 : !strcmp(p, "down") ? 1 : !strcmp(p, "firstfit") ? 2 : 0;
    next = env_u64("FAKE_ADDR_BASE", policy == 1 ? 0x7f0000000000ull : 0x20000000000ull);
    if (policy == 2) free_ranges[next] = 1ull << 62;
    hold = env_u64("FAKE_HOLD_EVENTS", 0);
    free_syncs = env_u64("FAKE_FREE_SYNCS", 0);
    boolean = (int)env_u64("FAKE_BOOL", 0);
    malloc_ns = env_u64("FAKE_MALLOC_NS", 0);
    free_ns = env_u64("FAKE_FREE_NS", 0);
    map_ns = env_u64("FAKE_MAP_NS", 0);
    unmap_ns = env_u64("FAKE_UNMAP_NS", 0);
    if (const char* cc = getenv("FAKE_CC")) sscanf(cc, "%d.%d", &cc_major, &cc_minor);
    if (const char* lp = getenv("FAKE_LOG")) {
      logpath = lp;
      log = true;
      atexit(dump_log);
    }
  }
  static void dump_log();

  uint64_t place(uint64_t len) {
    if (policy == 0) {
      uint64_t a = next;
      next += len;
      return a;
    }
    if (policy == 1) {
      next -= len;
      return next;
    }
    for (auto it = free_ranges.begin(); it != free_ranges.end(); ++it) {
      if (it->second >= len) {
        uint64_t a = it->first, n = it->second;
        free_ranges.erase(it);
        if (n > len) free_ranges[a + len] = n - len;
        return a;
      }
    }
    return 0;
  }
  void unplace(uint64_t a, uint64_t len) {
    if (policy != 2) return;
    auto it = free_ranges.emplace(a, len).first;
    auto nx = std::next(it);
    if (nx != free_ranges.end() && it->first + it->second == nx->first) {
      it->second += nx->second;
      free_ranges.erase(nx);
    }
    if (it != free_ranges.begin()) {
      auto pv = std::prev(it);
      if (pv->first + pv->second == it->first) {
        pv->second += it->second;
        free_ranges.erase(it);
      }
    }
  }
  bool charge(int dev, uint64_t len) {
    if (fail_next) {
      fail_next--;
      return false;
    }
    if (used[dev] + foreign + len > total[dev]) return false;
    used[dev] += len;
    if (used[dev] > peak_used) peak_used = used[dev];
    return true;
  }
  __attribute__((format(printf, 2, 3))) void L(const char* fmt, ...) {
    if (!log) return;
    char b[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(b, sizeof b, fmt, ap);
    va_end(ap);
    logbuf.append(b, n);
    logbuf.push_back('\n');
  }
  void complete_all() {
    for (auto& kv : streams) kv.second.completed = kv.second.recorded;
  }
};

Fake& F() {
  static Fake* f = new Fake();  // leaked: used from exit handlers
  return *f;
}
void Fake::dump_log() {
  Fake& f = F();
  if (FILE* o = fopen(f.logpath.c_str(), "a")) {
    fwrite(f.logbuf.data(), 1, f.logbuf.size(), o);
    fclose(o);
  }
}

thread_local int t_device = 0;
thread_local cudaError_t t_last = cudaSuccess;
cudaError_t ret(cudaError_t e) {
  if (e != cudaSuccess) t_last = e;
  return e;
}
using G = std::lock_guard<std::mutex>;
uint64_t rnd(uint64_t n) { return (n + kGran - 1) / kGran * kGran; }
void* normstream(cudaStream_t s) {
  // legacy (1) and per-thread (2) handles are treated as the default stream
  return (uintptr_t)s <= 2 ? nullptr : (void*)s;
}

}  // namespace

// ---------------------------------------------------------------- control --
EXPORT void fakecuda_set_hold(int h) {
  Fake& f = F();
  G g(f.mu);
  f.hold = h;
}
EXPORT void fakecuda_complete(void* s, int64_t n) {
  Fake& f = F();
  G g(f.mu);
  auto& st = f.streams[s];
  if (n < 0 || st.completed + (uint64_t)n > st.recorded)
    st.completed = st.recorded;
  else
    st.completed += n;
}
EXPORT void fakecuda_set_bool(int v) {
  Fake& f = F();
  G g(f.mu);
  f.boolean = v;
}
EXPORT void fakecuda_complete_all(void) {
  Fake& f = F();
  G g(f.mu);
  f.complete_all();
}
EXPORT void fakecuda_set_total(uint64_t b) {
  Fake& f = F();
  G g(f.mu);
  for (auto& x : f.total) x = b;
}
EXPORT void fakecuda_set_foreign(uint64_t b) {
  Fake& f = F();
  G g(f.mu);
  f.foreign = b;
}
EXPORT void fakecuda_fail_next(uint64_t n) {
  Fake& f = F();
  G g(f.mu);
  f.fail_next = n;
}
EXPORT void fakecuda_counters(fakecuda_counters_t* o) {
  Fake& f = F();
  G g(f.mu);
  *o = f.c;
  o->total = f.total[0];
  o->foreign = f.foreign;
  o->used = f.used[0];
  o->peak_used = f.peak_used;
  o->live_mallocs = f.mallocs.size();
  o->live_handles = f.handles.size();
  o->live_reservations = f.reservations.size();
}
EXPORT int fakecuda_cc(void) { return F().cc_major * 10 + F().cc_minor; }
EXPORT void fakecuda_log_enable(int on) {
  Fake& f = F();
  G g(f.mu);
  f.log = on;
}
EXPORT void fakecuda_log_take(void (*cb)(const char*, size_t, void*), void* ctx) {
  Fake& f = F();
  G g(f.mu);
  if (!f.logbuf.empty()) cb(f.logbuf.data(), f.logbuf.size(), ctx);
  f.logbuf.clear();
}

// ------------------------------------------------------------------ errors --
EXPORT cudaError_t cudaGetLastError(void) {
  auto e = t_last;
  t_last = cudaSuccess;
  return e;
}
EXPORT cudaError_t cudaPeekAtLastError(void) { return t_last; }
EXPORT const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    default:
      return "fake CUDA error";
  }
}
EXPORT const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    default:
      return "cudaErrorFake";
  }
}

// ------------------------------------------------------------------ device --
EXPORT cudaError_t cudaGetDeviceCount(int* n) {
  *n = F().device_count;
  return cudaSuccess;
}
EXPORT cudaError_t cudaGetDevice(int* d) {
  *d = t_device;
  return cudaSuccess;
}
EXPORT cudaError_t cudaSetDevice(int d) {
  if (d < 0 || d >= F().device_count) return ret(cudaErrorInvalidDevice);
  t_device = d;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDriverGetVersion(int* v) {
  *v = 13000;
  return cudaSuccess;
}
EXPORT cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = 13000;
  return cudaSuccess;
}
EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int dev) {
  Fake& f = F();
  if (dev < 0 || dev >= f.device_count) return ret(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "Fake GPU sm_%d%d", f.cc_major, f.cc_minor);
  for (int i = 0; i < 16; i++) p->uuid.bytes[i] = (char)(0x40 + i + dev);
  p->totalGlobalMem = f.total[dev];
  p->sharedMemPerBlock = 49152;
  p->regsPerBlock = 65536;
  p->warpSize = 32;
  p->memPitch = 2147483647;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = 1024;
  p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = 65535;
  p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  p->major = f.cc_major;
  p->minor = f.cc_minor;
  p->textureAlignment = 512;
  p->texturePitchAlignment = 32;
  p->multiProcessorCount = f.cc_major >= 9 ? 132 : 108;
  p->canMapHostMemory = 1;
  p->surfaceAlignment = 512;
  p->concurrentKernels = 1;
  p->ECCEnabled = 1;
  p->pciBusID = 1 + dev;
  p->pciDeviceID = 0;
  p->pciDomainID = 0;
  p->asyncEngineCount = 3;
  p->unifiedAddressing = 1;
  p->memoryBusWidth = 5120;
  p->l2CacheSize = 50 << 20;
  p->maxThreadsPerMultiProcessor = 2048;
  p->streamPrioritiesSupported = 1;
  p->globalL1CacheSupported = p->localL1CacheSupported = 1;
  p->sharedMemPerMultiprocessor = 233472;
  p->regsPerMultiprocessor = 65536;
  p->managedMemory = 1;
  p->computePreemptionSupported = 1;
  p->canUseHostPointerForRegisteredMem = 1;
  p->cooperativeLaunch = 1;
  p->sharedMemPerBlockOptin = 232448;
  p->maxBlocksPerMultiProcessor = 32;
  p->reservedSharedMemPerBlock = 1024;
  p->hostRegisterSupported = 1;
  p->memoryPoolsSupported = 0;
  p->clusterLaunch = f.cc_major >= 9;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceSynchronize(void) {
  Fake& f = F();
  G g(f.mu);
  f.c.n_device_sync++;
  f.complete_all();
  f.L("devsync");
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceCanAccessPeer(int* ok, int, int) {
  *ok = 0;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* lo, int* hi) {
  if (lo) *lo = 0;
  if (hi) *hi = -5;
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemGetInfo(size_t* fr, size_t* tot) {
  Fake& f = F();
  G g(f.mu);
  f.c.n_meminfo++;
  uint64_t u = f.used[t_device] + f.foreign;
  *tot = f.total[t_device];
  *fr = u > f.total[t_device] ? 0 : f.total[t_device] - u;
  return cudaSuccess;
}

// ------------------------------------------------------------------ memory --
EXPORT cudaError_t cudaMalloc(void** p, size_t size) {
  Fake& f = F();
  spin(f.malloc_ns);
  G g(f.mu);
  if (size == 0) {
    *p = nullptr;
    return cudaSuccess;
  }
  uint64_t len = rnd(size);
  if (len < size || !f.charge(t_device, len)) {
    f.c.n_malloc_fail++;
    f.L("malloc %zu OOM", size);
    return ret(cudaErrorMemoryAllocation);
  }
  uint64_t a = f.place(len);
  f.mallocs[a] = {len, t_device};
  f.c.n_malloc++;
  *p = (void*)a;
  f.L("malloc %zu 0x%llx", size, (unsigned long long)a);
  return cudaSuccess;
}
EXPORT cudaError_t cudaFree(void* p) {
  if (!p) return cudaSuccess;
  Fake& f = F();
  spin(f.free_ns);
  G g(f.mu);
  auto it = f.mallocs.find((uint64_t)p);
  if (it == f.mallocs.end()) {
    f.L("free %p INVALID", p);
    return ret(cudaErrorInvalidValue);
  }
  f.used[it->second.device] -= it->second.len;
  f.unplace(it->first, it->second.len);
  f.mallocs.erase(it);
  f.c.n_free++;
  if (f.free_syncs) f.complete_all();
  f.L("free 0x%llx", (unsigned long long)p);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) { return cudaMalloc(p, n); }
EXPORT cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return cudaFree(p); }
EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* m, int) {
  *m = (cudaMemPool_t)0x77;
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* v) {
  if (v) *(uint64_t*)v = 0;
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) {
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }

namespace {
// Device data does not exist. Copies to host write zeroes, copies from host
// and device-to-device copies do nothing.
bool is_dev(const void* p) {
  Fake& f = F();
  uint64_t a = (uint64_t)p;
  if (f.policy == 1 && a >= 0x600000000000ull && a < 0x7f0000000000ull && a >= f.next) return true;
  return a >= 0x20000000000ull &&
         a < 0x500000000000ull;  // also addresses made up by a pluggable allocator
}
void host_copy(void* d, const void* s, size_t n, cudaMemcpyKind k) {
  bool dd = k == cudaMemcpyHostToDevice || k == cudaMemcpyDeviceToDevice ||
            (k == cudaMemcpyDefault && is_dev(d));
  bool sd = k == cudaMemcpyDeviceToHost || k == cudaMemcpyDeviceToDevice ||
            (k == cudaMemcpyDefault && is_dev(s));
  if (dd) return;
  if (sd)
    memset(d, n == 1 ? F().boolean : 0, n);
  else
    memmove(d, s, n);
}
}  // namespace
EXPORT cudaError_t cudaMemcpy(void* d, const void* s, size_t n, cudaMemcpyKind k) {
  host_copy(d, s, n, k);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, cudaMemcpyKind k,
                                   cudaStream_t) {
  host_copy(d, s, n, k);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemcpyPeerAsync(void*, int, const void*, int, size_t, cudaStream_t) {
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemset(void*, int, size_t) { return cudaSuccess; }
EXPORT cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaSuccess; }
EXPORT cudaError_t cudaMemcpy2DAsync(void* d, size_t dp, const void* s, size_t sp, size_t w,
                                     size_t h, cudaMemcpyKind k, cudaStream_t) {
  for (size_t i = 0; i < h; i++) host_copy((char*)d + i * dp, (const char*)s + i * sp, w, k);
  return cudaSuccess;
}
EXPORT cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) {
  return (*p = aligned_alloc(4096, (n + 4095) / 4096 * 4096)) ? cudaSuccess
                                                              : ret(cudaErrorMemoryAllocation);
}
EXPORT cudaError_t cudaMallocHost(void** p, size_t n) { return cudaHostAlloc(p, n, 0); }
EXPORT cudaError_t cudaFreeHost(void* p) {
  free(p);
  return cudaSuccess;
}
EXPORT cudaError_t cudaHostRegister(void*, size_t, unsigned) { return cudaSuccess; }
EXPORT cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
EXPORT cudaError_t cudaHostGetDevicePointer(void** d, void* h, unsigned) {
  *d = h;
  return cudaSuccess;
}
EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  memset(a, 0, sizeof *a);
  if (is_dev(p)) {
    a->type = cudaMemoryTypeDevice;
    a->device = t_device;
    a->devicePointer = (void*)p;
  } else {
    a->type = cudaMemoryTypeUnregistered;
    a->device = -2;
    a->hostPointer = (void*)p;
  }
  return cudaSuccess;
}
EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* h, void* p) {
  memset(h, 0, sizeof *h);
  memcpy(h, &p, sizeof p);
  return cudaSuccess;
}
EXPORT cudaError_t cudaIpcOpenMemHandle(void** p, cudaIpcMemHandle_t h, unsigned) {
  memcpy(p, &h, sizeof *p);
  return cudaSuccess;
}
EXPORT cudaError_t cudaIpcCloseMemHandle(void*) { return cudaSuccess; }

// ------------------------------------------------------------------ events --
EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  Fake& f = F();
  auto* ev = new FakeEvent();
  G g(f.mu);
  f.c.n_event_create++;
  *e = (cudaEvent_t)ev;
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
EXPORT cudaError_t cudaEventDestroy(cudaEvent_t e) {
  Fake& f = F();
  G g(f.mu);
  f.c.n_event_destroy++;
  delete (FakeEvent*)e;
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned) {
  Fake& f = F();
  G g(f.mu);
  auto* ev = (FakeEvent*)e;
  void* sp = normstream(s);
  auto& st = f.streams[sp];
  ev->stream = sp;
  ev->ticket = ++st.recorded;
  ev->t_ns = now_ns();
  if (!f.hold) st.completed = st.recorded;
  f.c.n_event_record++;
  f.L("event_record stream=%p", sp);
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  return cudaEventRecordWithFlags(e, s, 0);
}
EXPORT cudaError_t cudaEventQuery(cudaEvent_t e) {
  Fake& f = F();
  G g(f.mu);
  f.c.n_event_query++;
  auto* ev = (FakeEvent*)e;
  if (ev->ticket == 0 || ev->ticket <= f.streams[ev->stream].completed) return cudaSuccess;
  return ret(cudaErrorNotReady);
}
EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  Fake& f = F();
  G g(f.mu);
  f.c.n_event_sync++;
  auto* ev = (FakeEvent*)e;
  if (ev->ticket) {
    auto& st = f.streams[ev->stream];
    if (st.completed < ev->ticket) st.completed = ev->ticket;
    f.L("event_sync stream=%p", ev->stream);
  }
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  *ms = (((FakeEvent*)b)->t_ns - (double)((FakeEvent*)a)->t_ns) * 1e-6;
  return cudaSuccess;
}

// ----------------------------------------------------------------- streams --
EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) {
  Fake& f = F();
  G g(f.mu);
  *s = (cudaStream_t)(uintptr_t)(0x100000 + 0x100 * f.next_stream++);
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned fl) {
  return cudaStreamCreateWithPriority(s, fl, 0);
}
EXPORT cudaError_t cudaStreamCreate(cudaStream_t* s) {
  return cudaStreamCreateWithPriority(s, 0, 0);
}
EXPORT cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
EXPORT cudaError_t cudaStreamQuery(cudaStream_t s) {
  Fake& f = F();
  G g(f.mu);
  auto it = f.streams.find(normstream(s));
  if (it == f.streams.end() || it->second.completed == it->second.recorded) return cudaSuccess;
  return ret(cudaErrorNotReady);
}
EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  Fake& f = F();
  G g(f.mu);
  f.c.n_stream_sync++;
  auto& st = f.streams[normstream(s)];
  st.completed = st.recorded;
  f.L("stream_sync stream=%p", normstream(s));
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t, int* p) {
  *p = 0;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* p) {
  *p = 0;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamGetDevice(cudaStream_t, int* d) {
  *d = t_device;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* st) {
  *st = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* st,
                                            unsigned long long* id, cudaGraph_t* gr,
                                            const cudaGraphNode_t** d, const cudaGraphEdgeData** e,
                                            size_t* n) {
  if (st) *st = cudaStreamCaptureStatusNone;
  if (id) *id = 0;
  if (gr) *gr = nullptr;
  if (d) *d = nullptr;
  if (e) *e = nullptr;
  if (n) *n = 0;
  return cudaSuccess;
}
EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* m) {
  static thread_local cudaStreamCaptureMode cur = cudaStreamCaptureModeGlobal;
  std::swap(*m, cur);
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*,
                                                cudaGraphEdgeData*, size_t* n) {
  if (n) *n = 0;
  return cudaSuccess;
}

// ----------------------------------------------------- driver API (libcuda) --
EXPORT CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuDriverGetVersion(int* v) {
  *v = 13000;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGet(CUdevice* d, int o) {
  *d = o;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetCount(int* n) {
  *n = F().device_count;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetAttribute(int* v, CUdevice_attribute a, CUdevice) {
  Fake& f = F();
  switch ((int)a) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *v = f.cc_major;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *v = f.cc_minor;
      break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      *v = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *v = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
      *v = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *v = f.cc_major >= 9 ? 132 : 108;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *v = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *v = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *v = 2048;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *v = 49152;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *v = 232448;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      *v = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      *v = 64;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      *v = 2147483647;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      *v = 65535;
      break;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      *v = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      *v = 2147483647;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      *v = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *v = 1980000;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      *v = 2619000;
      break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      *v = 5120;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *v = 50 << 20;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *v = 233472;
      break;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      *v = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      *v = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
      *v = 512;
      break;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
      *v = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      *v = 3;
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *v = 1;
      break;
    default:
      *v = 0;
  }
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorString(CUresult e, const char** s) {
  *s = e == CUDA_ERROR_OUT_OF_MEMORY   ? "out of memory"
       : e == CUDA_ERROR_INVALID_VALUE ? "invalid argument"
       : e                             ? "fake CUDA driver error"
                                       : "no error";
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemGetAllocationGranularity(size_t* g, const CUmemAllocationProp*,
                                              CUmemAllocationGranularity_flags) {
  *g = kGran;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemAddressReserve(CUdeviceptr* p, size_t size, size_t, CUdeviceptr,
                                    unsigned long long) {
  Fake& f = F();
  G g(f.mu);
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;  // as on a GPU: there is no empty range
  uint64_t len = rnd(size);
  *p = f.place(len);
  f.reservations[*p] = len;
  f.c.n_reserve++;
  f.L("reserve %zu 0x%llx", size, (unsigned long long)*p);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemAddressFree(CUdeviceptr p, size_t size) {
  Fake& f = F();
  G g(f.mu);
  auto it = f.reservations.find(p);
  if (it == f.reservations.end() || it->second != rnd(size)) {
    f.L("addrfree 0x%llx INVALID", (unsigned long long)p);
    return CUDA_ERROR_INVALID_VALUE;
  }
  f.unplace(p, it->second);
  f.reservations.erase(it);
  f.c.n_addrfree++;
  f.L("addrfree 0x%llx %zu", (unsigned long long)p, size);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* h, size_t size,
                            const CUmemAllocationProp* prop, unsigned long long) {
  Fake& f = F();
  spin(f.map_ns);
  G g(f.mu);
  if (size == 0 || size % kGran) return CUDA_ERROR_INVALID_VALUE;
  int dev = prop ? prop->location.id : 0;
  if (prop &&
      (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || dev < 0 || dev >= f.device_count))
    return CUDA_ERROR_INVALID_VALUE;
  if (!f.charge(dev, size)) {
    f.c.n_create_fail++;
    f.L("create %zu OOM", size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *h = f.next_handle++;
  f.handles[*h] = {size, 1, dev};
  f.c.n_create++;
  f.L("create %zu h%llu", size, (unsigned long long)*h);
  return CUDA_SUCCESS;
}
namespace {
void unref(Fake& f, uint64_t h) {
  auto it = f.handles.find(h);
  if (it == f.handles.end()) return;
  if (--it->second.refs == 0) {
    f.used[it->second.device] -= it->second.size;
    f.handles.erase(it);
  }
}
}  // namespace
EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
  Fake& f = F();
  G g(f.mu);
  if (!f.handles.count(h)) return CUDA_ERROR_INVALID_VALUE;
  unref(f, h);
  f.c.n_release++;
  f.L("release h%llu", (unsigned long long)h);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemMap(CUdeviceptr p, size_t size, size_t off, CUmemGenericAllocationHandle h,
                         unsigned long long) {
  Fake& f = F();
  G g(f.mu);
  auto it = f.handles.find(h);
  if (it == f.handles.end() || off != 0 || it->second.size != size || f.mappings.count(p))
    return CUDA_ERROR_INVALID_VALUE;
  it->second.refs++;
  f.mappings[p] = h;
  f.c.n_map++;
  f.L("map 0x%llx %zu h%llu", (unsigned long long)p, size, (unsigned long long)h);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemUnmap(CUdeviceptr p, size_t size) {
  Fake& f = F();
  spin(f.unmap_ns);
  G g(f.mu);
  if (!f.mappings.count(p)) return CUDA_ERROR_INVALID_VALUE;
  for (CUdeviceptr at = p; at < p + size; at += kGran) {  // one call may undo several mappings
    auto it = f.mappings.find(at);
    if (it == f.mappings.end()) continue;
    unref(f, it->second);
    f.mappings.erase(it);
  }
  f.c.n_unmap++;
  f.L("unmap 0x%llx %zu", (unsigned long long)p, size);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc*, size_t) {
  Fake& f = F();
  G g(f.mu);
  f.c.n_setaccess++;
  f.L("setaccess 0x%llx %zu", (unsigned long long)p, size);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle,
                                             CUmemAllocationHandleType, unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle*, void*,
                                               CUmemAllocationHandleType) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle*, void*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp*,
                                                       CUmemGenericAllocationHandle) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
EXPORT CUresult cuMemsetD32Async(CUdeviceptr, unsigned, size_t, CUstream) { return CUDA_SUCCESS; }
EXPORT CUresult cuStreamWriteValue32(CUstream, CUdeviceptr, cuuint32_t, unsigned) {
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext* c) {
  *c = (CUcontext)0x9000;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxPushCurrent(CUcontext) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxPopCurrent(CUcontext* c) {
  if (c) *c = (CUcontext)0x9000;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* fl, int* act) {
  if (fl) *fl = 0;
  *act = 1;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* c, CUdevice) {
  *c = (CUcontext)0x9000;
  return CUDA_SUCCESS;
}

namespace {
int unsupported_driver_fn() { return CUDA_ERROR_NOT_SUPPORTED; }
struct Sym {
  const char* n;
  void* p;
};
const Sym kSyms[] = {
#define S(x) \
  { #x, (void*)&x }
    S(cuInit),
    S(cuDriverGetVersion),
    S(cuDeviceGet),
    S(cuDeviceGetCount),
    S(cuDeviceGetAttribute),
    S(cuGetErrorString),
    S(cuMemGetAllocationGranularity),
    S(cuMemAddressReserve),
    S(cuMemAddressFree),
    S(cuMemCreate),
    S(cuMemRelease),
    S(cuMemMap),
    S(cuMemUnmap),
    S(cuMemSetAccess),
    S(cuMemExportToShareableHandle),
    S(cuMemImportFromShareableHandle),
    S(cuMemRetainAllocationHandle),
    S(cuMemGetAllocationPropertiesFromHandle),
    S(cuMemsetD32Async),
    S(cuStreamWriteValue32),
    S(cuCtxGetCurrent),
    S(cuCtxSetCurrent),
    S(cuCtxPushCurrent),
    S(cuCtxPopCurrent),
    S(cuDevicePrimaryCtxGetState),
    S(cuDevicePrimaryCtxRetain),
#undef S
};
}  // namespace
EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char* sym, void** fn, unsigned,
                                                    unsigned long long,
                                                    cudaDriverEntryPointQueryResult* st) {
  for (auto& s : kSyms)
    if (!strcmp(s.n, sym)) {
      *fn = s.p;
      if (st) *st = cudaDriverEntryPointSuccess;
      return cudaSuccess;
    }
  // Unknown driver functions (green contexts, multicast) resolve to a function
  // that reports CUDA_ERROR_NOT_SUPPORTED.
  *fn = (void*)&unsupported_driver_fn;
  if (st) *st = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
EXPORT cudaError_t cudaGetDriverEntryPoint(const char* sym, void** fn, unsigned long long fl,
                                           cudaDriverEntryPointQueryResult* st) {
  return cudaGetDriverEntryPointByVersion(sym, fn, 0, fl, st);
}
