// Replays a text trace through the real PyTorch CUDA caching allocator
// (libc10_cuda.so) on top of the fake CUDA runtime. See ../README.md.
#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <c10/util/flat_hash_map.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fakecuda.h"
#include "interface.h"

using Clock = std::chrono::steady_clock;

static inline cudaStream_t stream_handle(uint32_t k) {
  return k == 0 ? nullptr : (cudaStream_t)(uintptr_t)(0x1000ull * k);
}
static long stream_index(const void* h) { return (long)((uintptr_t)h / 0x1000ull); }

struct Op {
  char code;
  uint32_t slot = 0;  // dense id
  uint32_t stream = 0;
  uint64_t size = 0;  // bytes, pool, or argument
  bool flag = false;  // second argument of 'U'
  double f = 0;
  int32_t str = -1;             // index into strings
  std::vector<uint32_t> slots;  // of 'L'
};

struct Trace {
  std::vector<Op> ops;
  std::vector<std::string> ids;  // slot -> id text
  std::vector<std::string> strings;
  std::vector<std::string> checkpoints;  // their names
};

static std::string read_all(FILE* in) {
  std::string s;
  char buf[1 << 16];
  size_t n;
  while ((n = fread(buf, 1, sizeof buf, in)) > 0) s.append(buf, n);
  return s;
}

static void die(const char* fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vfprintf(stderr, fmt, ap);
  va_end(ap);
  fputc('\n', stderr);
  exit(2);
}

// Whether the release has what the op calls.
static bool supported(const Op& o) {
  switch (o.code) {
    case 'U':
      return set_use_on_oom(ca::get(), {}, o.flag, false, 0);
    case 'N':
      return set_no_split(ca::get(), {}, false, 0);
    case 'C':
      return empty_pool(ca::get(), {}, false, 0);
    case 'G':
      return mark_capture(ca::get(), o.flag, false, 0);
    case 'T':
      return set_reserve_class(nullptr, "", false);
    default:
      return true;
  }
}

static Trace parse(const std::string& text) {
  Trace t;
  std::unordered_map<std::string, uint32_t> slots;
  auto slot = [&](const std::string& id) {
    auto it = slots.find(id);
    if (it != slots.end()) return it->second;
    uint32_t k = (uint32_t)t.ids.size();
    t.ids.push_back(id);
    slots.emplace(id, k);
    return k;
  };
  auto checkpoint = [&](const std::string& name) {
    auto it = std::find(t.checkpoints.begin(), t.checkpoints.end(), name);
    if (it == t.checkpoints.end()) it = t.checkpoints.insert(it, name);
    return (uint32_t)(it - t.checkpoints.begin());
  };
  size_t pos = 0, lineno = 0;
  while (pos < text.size()) {
    size_t eol = text.find('\n', pos);
    if (eol == std::string::npos) eol = text.size();
    std::string line = text.substr(pos, eol - pos);
    pos = eol + 1;
    lineno++;
    size_t hash = line.find('#');
    if (hash != std::string::npos) line.resize(hash);
    std::vector<std::string> w;
    size_t i = 0;
    while (i < line.size()) {
      while (i < line.size() && isspace((unsigned char)line[i])) i++;
      size_t j = i;
      while (j < line.size() && !isspace((unsigned char)line[j])) j++;
      if (j > i) w.push_back(line.substr(i, j - i));
      i = j;
    }
    if (w.empty()) continue;
    if (w[0].size() != 1) die("line %zu: bad op '%s'", lineno, w[0].c_str());
    Op o;
    o.code = w[0][0];
    auto need = [&](size_t n) {
      if (w.size() < n) die("line %zu: op '%c' needs %zu arguments", lineno, o.code, n - 1);
    };
    switch (o.code) {
      case 'a':
        need(3);
        o.slot = slot(w[1]);
        o.size = strtoull(w[2].c_str(), nullptr, 0);
        o.stream = w.size() > 3 ? (uint32_t)strtoul(w[3].c_str(), nullptr, 0) : 0;
        break;
      case 'f':
        need(2);
        o.slot = slot(w[1]);
        break;
      case 'r':
        need(3);
        o.slot = slot(w[1]);
        o.stream = (uint32_t)strtoul(w[2].c_str(), nullptr, 0);
        break;
      case 'e':
        need(2);
        o.stream = w[1] == "*" ? UINT32_MAX : (uint32_t)strtoul(w[1].c_str(), nullptr, 0);
        o.size = w.size() > 2 ? strtoull(w[2].c_str(), nullptr, 0) : UINT64_MAX;
        break;
      case 'h':
      case 't':
      case 'u':
      case 'x':
      case 'B':
      case 'E':
      case 'P':
      case 'N':
      case 'C':
        need(2);
        o.size = strtoull(w[1].c_str(), nullptr, 0);
        break;
      case 'U':
        need(3);
        o.size = strtoull(w[1].c_str(), nullptr, 0);
        o.flag = strtoull(w[2].c_str(), nullptr, 0) != 0;
        break;
      case 'T':
        need(2);
        o.stream = (uint32_t)strtoul(w[1].c_str(), nullptr, 0);
        o.str = (int32_t)t.strings.size();
        t.strings.push_back(w.size() > 2 ? w[2] : "");
        break;
      case 'V':
        need(3);
        o.size = strtoull(w[1].c_str(), nullptr, 0);
        o.slot = checkpoint(w[2]);
        break;
      case 'R':
        need(2);
        o.slot = checkpoint(w[1]);
        break;
      case 'L':
        need(2);
        o.size = strtoull(w[1].c_str(), nullptr, 0);
        for (size_t i = 2; i < w.size(); i++) o.slots.push_back(slot(w[i]));
        break;
      case 'G':
        need(2);
        o.flag = strtoull(w[1].c_str(), nullptr, 0) != 0;
        break;
      case 'm':
        need(2);
        o.f = strtod(w[1].c_str(), nullptr);
        break;
      case 'o':
        need(2);
        o.str = (int32_t)t.strings.size();
        t.strings.push_back(w[1]);
        break;
      case 'c':
      case 's':
      case 'S':
      case 'p':
      case 'y':
      case 'k':
      case 'K':
        break;
      default:
        die("line %zu: unknown op '%c'", lineno, o.code);
    }
    if (!supported(o)) die("line %zu: this release of PyTorch has no '%s'", lineno, line.c_str());
    t.ops.push_back(o);
  }
  return t;
}

// ------------------------------------------------------------------ output --
static constexpr int AGG = 0;  // of a StatArray: both pools together

static void print_stats_line(FILE* out, size_t n) {
  DeviceStats s = ca::getDeviceStats(0);
  fprintf(out,
          "S %zu %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
          " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n",
          n, s.allocated_bytes[AGG].current, s.reserved_bytes[AGG].current,
          s.active_bytes[AGG].current, s.inactive_split_bytes[AGG].current,
          s.requested_bytes[AGG].current, s.num_alloc_retries, s.num_ooms, s.segment[AGG].current,
          s.num_device_alloc, s.num_device_free, s.num_sync_all_streams);
}

static void print_stat(FILE* out, const char* name, const char* pool, const Stat& s) {
  fprintf(out, "STAT %s %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", name, pool,
          s.current, s.peak, s.allocated, s.freed);
}
static void print_array(FILE* out, const char* name, const StatArray& a) {
  static const char* pools[] = {"all", "small", "large"};
  for (int i = 0; i < 3; i++) print_stat(out, name, pools[i], a[i]);
}
static void print_full_stats(FILE* out) {
  DeviceStats s = ca::getDeviceStats(0);
  print_array(out, "allocation", s.allocation);
  print_array(out, "segment", s.segment);
  print_array(out, "active", s.active);
  print_array(out, "inactive_split", s.inactive_split);
  print_array(out, "allocated_bytes", s.allocated_bytes);
  print_array(out, "reserved_bytes", s.reserved_bytes);
  print_array(out, "active_bytes", s.active_bytes);
  print_array(out, "inactive_split_bytes", s.inactive_split_bytes);
  print_array(out, "requested_bytes", s.requested_bytes);
  if (auto* pools = reserved_by_pool(s, 0))
    for (auto& [id, stats] : std::map<Pool, StatArray>(pools->begin(), pools->end())) {
      std::string name = "reserved_bytes_by_private_pools." + std::to_string(id.first) + "_" +
                         std::to_string(id.second);
      print_array(out, name.c_str(), stats);
    }
  print_stat(out, "oversize_allocations", "-", s.oversize_allocations);
  print_stat(out, "oversize_segments", "-", s.oversize_segments);
  fprintf(out,
          "NUM num_alloc_retries %" PRId64 "\nNUM num_ooms %" PRId64
          "\nNUM num_sync_all_streams %" PRId64 "\nNUM num_device_alloc %" PRId64
          "\nNUM num_device_free %" PRId64 "\nNUM max_split_size %" PRId64 "\n",
          s.num_alloc_retries, s.num_ooms, s.num_sync_all_streams, s.num_device_alloc,
          s.num_device_free, s.max_split_size);
  // A zero is not printed, as in releases without the statistic.
  if (auto* n = oom_rejections(s, 0); n && *n)
    fprintf(out, "NUM num_oom_rejections %" PRId64 "\n", *n);
}
static const char* action_name(TraceEntry::Action a) {
  switch (a) {
    case TraceEntry::ALLOC:
      return "alloc";
    case TraceEntry::FREE_REQUESTED:
      return "free_requested";
    case TraceEntry::FREE_COMPLETED:
      return "free_completed";
    case TraceEntry::SEGMENT_ALLOC:
      return "segment_alloc";
    case TraceEntry::SEGMENT_FREE:
      return "segment_free";
    case TraceEntry::SEGMENT_MAP:
      return "segment_map";
    case TraceEntry::SEGMENT_UNMAP:
      return "segment_unmap";
    case TraceEntry::SNAPSHOT:
      return "snapshot";
    case TraceEntry::OOM:
      return "oom";
    default:
      break;
  }
  return "?";
}
static void print_snapshot(FILE* out) {
  auto snap = snapshot(ca::get(), false, 0);
  for (auto& g : snap.segments) {
    fprintf(out,
            "SEG 0x%zx %zu stream=%ld %s expandable=%d requested=%zu allocated=%zu active=%zu "
            "pool=%llu,%llu blocks=%zu\n",
            g.address, g.total_size, stream_index(g.stream), g.is_large ? "large" : "small",
            (int)g.is_expandable, g.requested_size, g.allocated_size, g.active_size,
            (unsigned long long)g.owner_private_pool_id.first,
            (unsigned long long)g.owner_private_pool_id.second, g.blocks.size());
    size_t a = g.address;
    for (auto& b : g.blocks) {
      const char* st = b.allocated ? "active_allocated"
                       : b.active  ? "active_pending_free"
                                   : "inactive";
      fprintf(out, "BLK 0x%zx %zu requested=%zu %s gc=%d\n", a, b.size, b.requested_size, st,
              b.gc_counter);
      a += b.size;
    }
  }
}
static void print_history(FILE* out) {
  auto snap = snapshot(ca::get(), true, 0);
  for (auto& t : snap.device_traces.at(0))
    fprintf(out, "TRC %s 0x%zx %zu stream=%ld\n", action_name(t.action_), t.addr_, t.size_,
            stream_index(t.stream_));
}
static std::string one_line(std::string s) {
  std::string r;
  for (char c : s) {
    if (c == '\n')
      r += "\\n";
    else
      r += c;
  }
  return r;
}

// ------------------------------------------------------------------ replay --
struct Options {
  bool stats_every = false;
  bool history = false;
  bool cudalog = false;
  bool final = true;
  bool oom_msg = true;
  bool quiet = false;
  int bench = 0;
  int inner = 1;
  int threads = 1;
  bool free_on_other_thread = false;
  bool single_thread = false;
  bool cold = false;
  std::string api = "raw";
  size_t history_max = 1 << 20;
};

static void record_on(void* p, uint32_t stream) {
  // A non-owning DataPtr with the native deleter is what recordStream checks.
  c10::DataPtr dp(p, p, ca::get()->raw_deleter(), c10::Device(c10::kCUDA, 0));
  ca::get()->recordStream(dp, c10::cuda::getStreamFromExternal(stream_handle(stream), 0));
  dp.release_context();  // do not free
}

// What PyTorch keeps of a private pool (CUDACachingAllocator.cpp, 2.6 to 2.15), as far as
// sort_segments needs it.
struct BlockState {
  c10::DeviceIndex device;
  cudaStream_t stream;
  ska::flat_hash_set<c10::cuda::CUDAStream> stream_uses;
  size_t size;
  void* ptr;
  bool allocated;
  int64_t gc_count_base;
};
struct SegmentState {
  std::vector<BlockState> blocks;
  bool is_small;
};
struct PrivatePoolState : ca::AllocatorState {
  std::pair<uint64_t, uint64_t> owner_id;
  std::vector<SegmentState> segments;
};

// The segments whose first block is allocated come first, in the order of a hash of heap addresses,
// which differs from run to run. It decides the order in which they are restored, and what a restore
// that fails has done. Sorted by address, they can be compared.
static std::shared_ptr<ca::AllocatorState> sort_segments(std::shared_ptr<ca::AllocatorState> state) {
  auto& segments = static_cast<PrivatePoolState&>(*state).segments;
  auto is_allocated = [](const SegmentState& s) { return s.blocks.front().allocated; };
  auto end = std::find_if_not(segments.begin(), segments.end(), is_allocated);
  std::sort(segments.begin(), end, [](const SegmentState& a, const SegmentState& b) {
    return a.blocks.front().ptr < b.blocks.front().ptr;
  });
  return state;
}

// A checkpoint of a private pool, with the ids that were live.
struct Checkpoint {
  std::shared_ptr<ca::AllocatorState> state;
  std::vector<void*> ptr;
  std::vector<char> live;
};

static void print_addresses(FILE* out, std::set<void*> addresses) {
  for (void* p : addresses) fprintf(out, " 0x%zx", (size_t)p);
}

// Restores a checkpoint. Ids in the pool are then live if they were, unless they denote another
// allocation by now.
static void restore(const Checkpoint& c, const char* name, std::vector<void*>& ptr,
                    std::vector<char>& live, bool quiet, FILE* out) {
  auto delta = ca::setCheckpointPoolState(0, c.state);
  std::set<void*> freed(delta.ptrs_freed.begin(), delta.ptrs_freed.end()), allocated;
  for (auto& data : delta.dataptrs_allocd) allocated.insert(data.release_context());
  for (size_t i = 0; i < ptr.size(); i++) {
    if (live[i] && freed.count(ptr[i])) live[i] = 0;
    if (!live[i] && c.live[i] && allocated.count(c.ptr[i])) {
      live[i] = 1;
      ptr[i] = c.ptr[i];
    }
  }
  if (quiet) return;
  fprintf(out, "R %s freed", name);
  print_addresses(out, freed);
  fprintf(out, " allocated");
  print_addresses(out, allocated);
  fprintf(out, "\n");
}

static void log_cb(const char* t, size_t n, void* ctx) {
  FILE* out = (FILE*)ctx;
  size_t i = 0;
  while (i < n) {
    const char* e = (const char*)memchr(t + i, '\n', n - i);
    size_t j = e ? (size_t)(e - t) : n;
    fwrite("> ", 1, 2, out);
    fwrite(t + i, 1, j - i, out);
    fputc('\n', out);
    i = j + 1;
  }
}

static int replay(const Trace& t, const Options& o, FILE* out) {
  std::vector<void*> ptr(t.ids.size(), nullptr);
  std::vector<char> live(t.ids.size(), 0);
  std::vector<Checkpoint> checkpoints(t.checkpoints.size());
  fakecuda_log_enable(o.cudalog);
  if (o.history) record_history(ca::get(), o.history_max, 0);
  if (!o.quiet) {
    fprintf(out,
            "# S op allocated reserved active inactive_split requested retries ooms segments "
            "device_alloc device_free sync_all\n");
  }
  size_t n = 0, errors = 0;
  for (const Op& op : t.ops) {
    try {
      switch (op.code) {
        case 'a': {
          const char* id = t.ids[op.slot].c_str();
          if (live[op.slot]) die("op %zu: id %s is already live", n, id);
          try {
            void* p = ca::raw_alloc_with_stream(op.size, stream_handle(op.stream));
            ptr[op.slot] = p;
            live[op.slot] = 1;
            if (o.cudalog) fakecuda_log_take(log_cb, out);
            if (!o.quiet) fprintf(out, "A %s 0x%zx\n", id, (size_t)p);
          } catch (const c10::OutOfMemoryError& e) {
            if (o.cudalog) fakecuda_log_take(log_cb, out);
            cudaGetLastError();
            if (!o.quiet) {
              if (o.oom_msg)
                fprintf(out, "oom %s %s\n", id, one_line(e.what_without_backtrace()).c_str());
              else
                fprintf(out, "oom %s\n", id);
            }
          }
          break;
        }
        case 'f':
          if (!live[op.slot]) {
            if (!o.quiet) fprintf(out, "skip f %s\n", t.ids[op.slot].c_str());
            break;
          }
          ca::raw_delete(ptr[op.slot]);
          live[op.slot] = 0;
          ptr[op.slot] = nullptr;
          break;
        case 'r':
          if (!live[op.slot]) {
            if (!o.quiet) fprintf(out, "skip r %s\n", t.ids[op.slot].c_str());
            break;
          }
          record_on(ptr[op.slot], op.stream);
          break;
        case 'e':
          if (op.stream == UINT32_MAX)
            fakecuda_complete_all();
          else
            fakecuda_complete(stream_handle(op.stream),
                              op.size == UINT64_MAX ? -1 : (int64_t)op.size);
          break;
        case 'h':
          fakecuda_set_hold((int)op.size);
          break;
        case 'c':
          ca::emptyCache();
          break;
        case 'm':
          ca::setMemoryFraction(op.f, 0);
          break;
        case 't':
          fakecuda_set_total(op.size);
          break;
        case 'u':
          fakecuda_set_foreign(op.size);
          break;
        case 'x':
          fakecuda_fail_next(op.size);
          break;
        case 'y':
          cudaDeviceSynchronize();
          break;
        case 'k':
          ca::resetPeakStats(0);
          break;
        case 'K':
          ca::resetAccumulatedStats(0);
          break;
        case 'o':
          ca::setAllocatorSettings(t.strings[op.str]);
          break;
        case 'B':
          ca::beginAllocateToPool(0, {0, op.size}, [](cudaStream_t) { return true; });
          break;
        case 'E':
          ca::endAllocateToPool(0, {0, op.size});
          break;
        case 'P':
          ca::releasePool(0, {0, op.size});
          break;
        case 'U':
          set_use_on_oom(ca::get(), {0, op.size}, op.flag, true, 0);
          break;
        case 'N':
          set_no_split(ca::get(), {0, op.size}, true, 0);
          break;
        case 'C':
          empty_pool(ca::get(), {0, op.size}, true, 0);
          break;
        case 'V':
          checkpoints[op.slot] = {sort_segments(ca::getCheckpointState(0, {0, op.size})), ptr, live};
          break;
        case 'R': {
          const char* name = t.checkpoints[op.slot].c_str();
          if (checkpoints[op.slot].state)
            restore(checkpoints[op.slot], name, ptr, live, o.quiet, out);
          else if (!o.quiet)
            fprintf(out, "skip R %s\n", name);
          break;
        }
        case 'L': {
          std::unordered_set<void*> expected;
          for (uint32_t slot : op.slots)
            if (live[slot] && ptr[slot]) expected.insert(ptr[slot]);
          bool alike = ca::checkPoolLiveAllocations(0, {0, op.size}, expected);
          if (!o.quiet) fprintf(out, "L %" PRIu64 " %d\n", op.size, (int)alike);
          break;
        }
        case 'G':
          fakecuda_set_capturing(op.flag);
          mark_capture(ca::get(), op.flag, true, 0);
          break;
        case 'T':
          set_reserve_class(stream_handle(op.stream), t.strings[op.str], true);
          break;
        case 's':
          if (!o.stats_every) print_stats_line(out, n);
          break;
        case 'S':
          print_full_stats(out);
          break;
        case 'p':
          print_snapshot(out);
          break;
      }
    } catch (const c10::Error& e) {
      errors++;
      fprintf(out, "err %zu %c %s\n", n, op.code, one_line(e.what_without_backtrace()).c_str());
    }
    if (o.cudalog) fakecuda_log_take(log_cb, out);
    if (o.stats_every) print_stats_line(out, n);
    n++;
  }
  if (o.final) {
    fprintf(out, "# final\n");
    print_full_stats(out);
    print_snapshot(out);
    if (o.history) print_history(out);
    fakecuda_counters_t c;
    fakecuda_counters(&c);
    fprintf(out,
            "FAKE total=%" PRIu64 " used=%" PRIu64 " peak=%" PRIu64 " malloc=%" PRIu64
            " malloc_fail=%" PRIu64 " free=%" PRIu64 " reserve=%" PRIu64 " create=%" PRIu64
            " create_fail=%" PRIu64 " release=%" PRIu64 " map=%" PRIu64 " unmap=%" PRIu64
            " event_create=%" PRIu64 " event_record=%" PRIu64 " event_query=%" PRIu64
            " event_sync=%" PRIu64 " stream_sync=%" PRIu64 " device_sync=%" PRIu64 "\n",
            c.total, c.used, c.peak_used, c.n_malloc, c.n_malloc_fail, c.n_free, c.n_reserve,
            c.n_create, c.n_create_fail, c.n_release, c.n_map, c.n_unmap, c.n_event_create,
            c.n_event_record, c.n_event_query, c.n_event_sync, c.n_stream_sync, c.n_device_sync);
  }
  if (errors)
    fprintf(stderr, "oracle: %zu ops raised an error other than out of memory ('err' lines)\n",
            errors);
  return errors ? 3 : 0;
}

// ------------------------------------------------------------------- bench --
struct BenchResult {
  double ns;
  uint64_t allocs, ooms;
};

// 16 bytes per op, so that walking the trace costs little.
struct BOp {
  uint64_t size;  // bytes, argument, or the bits of a double
  uint32_t slot;
  uint16_t stream;  // 0xffff: all
  uint16_t code;
};
static double bits_double(uint64_t b) {
  double d;
  memcpy(&d, &b, 8);
  return d;
}
static std::vector<BOp> compact(const std::vector<Op>& ops) {
  std::vector<BOp> v;
  for (const Op& o : ops) {
    if (!strchr("afrehcm", o.code)) continue;  // printing and rare ops are not timed
    BOp b{o.size, o.slot, (uint16_t)(o.stream == UINT32_MAX ? 0xffff : o.stream), (uint16_t)o.code};
    if (o.code == 'm') memcpy(&b.size, &o.f, 8);
    v.push_back(b);
  }
  return v;
}

// A bounded queue that hands addresses from one thread to another, in batches. The same as in
// ../script/src/bench/handover.rs. The address with the number n, from 0, is in ring[n % WINDOW];
// taken <= sent <= taken + WINDOW.
class Handover {
 public:
  // Sends an address. Waits while the queue is full.
  void send(void* p) {
    if (number_ % BATCH == 0)
      wait_until(
          [&] { return number_ - taken_.load(std::memory_order_acquire) <= WINDOW - BATCH; });
    ring_[number_ % WINDOW].store(p, std::memory_order_relaxed);
    if (++number_ % BATCH == 0) sent_.store(number_, std::memory_order_release);
  }
  void close() {
    sent_.store(number_, std::memory_order_release);
    closed_.store(true, std::memory_order_release);
  }
  // Calls take for each address in order, until the queue is closed.
  template <class Take>
  void receive(Take take) {
    size_t taken = 0;
    for (;;) {
      wait_until([&] {
        return closed_.load(std::memory_order_acquire) ||
               sent_.load(std::memory_order_acquire) > taken;
      });
      size_t end = std::min(sent_.load(std::memory_order_acquire), taken + BATCH);
      if (end == taken) return;
      for (; taken < end; taken++) take(ring_[taken % WINDOW].load(std::memory_order_relaxed));
      taken_.store(taken, std::memory_order_release);
    }
  }

 private:
  static constexpr size_t BATCH = 64;          // addresses that the receiver gets at once
  static constexpr size_t WINDOW = 4 * BATCH;  // the capacity in addresses
  static constexpr int SPINS = 1000;           // looks before a waiting thread lets others run
  template <class Ready>
  static void wait_until(Ready ready) {
    for (int looks = 0; !ready();) {
      if (looks < SPINS) {
        looks++;
        __builtin_ia32_pause();
      } else {
        std::this_thread::yield();
      }
    }
  }
  std::atomic<void*> ring_[WINDOW] = {};
  size_t number_ = 0;  // addresses so far; the sender's
  alignas(64) std::atomic<size_t> sent_{0};
  alignas(64) std::atomic<size_t> taken_{0};
  std::atomic<bool> closed_{false};
};

// What becomes of an address that the trace frees.
struct FreeHere {
  void operator()(void* p) const { ca::raw_delete(p); }  // ignores nullptr
};
struct Forget {
  void operator()(void*) const { asm volatile("" ::: "memory"); }
};
struct HandOver {
  Handover& queue;
  void operator()(void* p) const { queue.send(p); }
};

template <bool Null, class Free>
static BenchResult bench_raw(const std::vector<BOp>& ops, std::vector<void*>& ptr, int inner,
                             Free free) {
  uint64_t allocs = 0, ooms = 0;
  auto t0 = Clock::now();
  for (int rep = 0; rep < inner; rep++)
    for (const BOp& op : ops) {
      switch (op.code) {
        case 'a':
          allocs++;
          if (Null) {
            ptr[op.slot] = (void*)op.size;
            asm volatile("" ::: "memory");
            break;
          }
          try {
            ptr[op.slot] = ca::raw_alloc_with_stream(
                op.size, (cudaStream_t)(uintptr_t)(0x1000ull * op.stream));
          } catch (const c10::OutOfMemoryError&) {
            ptr[op.slot] = nullptr;
            ooms++;
          }
          break;
        case 'f':
          free(ptr[op.slot]);
          ptr[op.slot] = nullptr;
          break;
        case 'r':
          if (!Null && ptr[op.slot]) record_on(ptr[op.slot], op.stream);
          break;
        case 'e':
          if (!Null) {
            if (op.stream == 0xffff)
              fakecuda_complete_all();
            else
              fakecuda_complete(stream_handle(op.stream),
                                op.size == UINT64_MAX ? -1 : (int64_t)op.size);
          }
          break;
        case 'h':
          if (!Null) fakecuda_set_hold((int)op.size);
          break;
        case 'c':
          if (!Null) ca::emptyCache();
          break;
        case 'm':
          if (!Null) ca::setMemoryFraction(bits_double(op.size), 0);
          break;
        default:
          break;
      }
    }
  auto t1 = Clock::now();
  return {(double)std::chrono::duration_cast<std::chrono::nanoseconds>(t1 - t0).count(), allocs,
          ooms};
}

// The path a tensor takes: Allocator::allocate(n) -> DataPtr on the current
// stream, freed by the DataPtr destructor. All ops must be on one stream at a
// time; a change of stream goes through setCurrentCUDAStream.
static BenchResult bench_dataptr(const std::vector<BOp>& ops, std::vector<c10::DataPtr>& ptr,
                                 int inner) {
  uint64_t allocs = 0, ooms = 0;
  uint32_t cur = 0;
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromExternal(nullptr, 0));
  auto* al = ca::get();
  auto t0 = Clock::now();
  for (int rep = 0; rep < inner; rep++)
    for (const BOp& op : ops) {
      switch (op.code) {
        case 'a':
          allocs++;
          if (op.stream != cur) {
            cur = op.stream;
            c10::cuda::setCurrentCUDAStream(
                c10::cuda::getStreamFromExternal(stream_handle(cur), 0));
          }
          try {
            ptr[op.slot] = al->allocate(op.size);
          } catch (const c10::OutOfMemoryError&) {
            ooms++;
          }
          break;
        case 'f':
          ptr[op.slot].clear();
          break;
        case 'r':
          if (ptr[op.slot])
            al->recordStream(ptr[op.slot],
                             c10::cuda::getStreamFromExternal(stream_handle(op.stream), 0));
          break;
        case 'e':
          if (op.stream == 0xffff)
            fakecuda_complete_all();
          else
            fakecuda_complete(stream_handle(op.stream),
                              op.size == UINT64_MAX ? -1 : (int64_t)op.size);
          break;
        case 'h':
          fakecuda_set_hold((int)op.size);
          break;
        case 'c':
          ca::emptyCache();
          break;
        case 'm':
          ca::setMemoryFraction(bits_double(op.size), 0);
          break;
        default:
          break;
      }
    }
  auto t1 = Clock::now();
  return {(double)std::chrono::duration_cast<std::chrono::nanoseconds>(t1 - t0).count(), allocs,
          ooms};
}

// K threads, thread i replays the whole trace on stream (its stream + i).
// Returns wall time; allocs is the sum over the threads.
static BenchResult bench_threads(const std::vector<BOp>& ops, size_t slots, int k, int inner) {
  std::vector<std::thread> th;
  std::vector<std::vector<BOp>> tr(k, ops);
  std::vector<std::vector<void*>> ptrs(k, std::vector<void*>(slots, nullptr));
  std::vector<BenchResult> res(k);
  for (int i = 0; i < k; i++)
    for (auto& op : tr[i])
      if (op.code == 'a') op.stream += i;
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  for (int i = 0; i < k; i++)
    th.emplace_back([&, i] {
      c10::cuda::set_device(0);
      ready++;
      while (!go.load()) {
      }
      res[i] = bench_raw<false>(tr[i], ptrs[i], inner, FreeHere{});
    });
  while (ready.load() < k) {
  }
  auto t0 = Clock::now();
  go = true;
  for (auto& t : th) t.join();
  auto t1 = Clock::now();
  BenchResult r{(double)std::chrono::duration_cast<std::chrono::nanoseconds>(t1 - t0).count(), 0,
                0};
  for (int i = 0; i < k; i++) {
    r.allocs += res[i].allocs;
    r.ooms += res[i].ooms;
    for (auto& p : ptrs[i])
      if (p) ca::raw_delete(p);
  }
  return r;
}

// This thread replays the trace, another frees what it frees. Returns the time until the last free.
template <bool Null>
static BenchResult bench_free_on_other_thread(const std::vector<BOp>& ops, std::vector<void*>& ptr,
                                              int inner) {
  Handover queue;
  std::atomic<bool> ready{false};
  std::thread other([&] {
    c10::cuda::set_device(0);
    ready = true;
    if (Null)
      queue.receive(Forget{});
    else
      queue.receive(FreeHere{});
  });
  while (!ready.load()) {
  }
  auto t0 = Clock::now();
  BenchResult r = bench_raw<Null>(ops, ptr, inner, HandOver{queue});
  queue.close();
  other.join();
  auto t1 = Clock::now();
  r.ns = (double)std::chrono::duration_cast<std::chrono::nanoseconds>(t1 - t0).count();
  return r;
}

static double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  size_t n = v.size();
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static int bench(const Trace& t, const Options& o, FILE* out) {
  if (o.history) record_history(ca::get(), o.history_max, 0);
  std::vector<void*> ptr(t.ids.size(), nullptr);
  std::vector<c10::DataPtr> dptr;
  if (o.api == "dataptr") dptr.resize(t.ids.size());
  // A production process has many threads, and glibc and libstdc++ use slower
  // (atomic) paths once there is more than one: have one, asleep.
  if (!o.single_thread)
    std::thread([] { std::this_thread::sleep_for(std::chrono::hours(100)); }).detach();
  std::vector<double> per_pair, null_pair, cpu_pair;
  const std::vector<BOp> ops = compact(t.ops);
  uint64_t allocs = 0, ooms = 0;
  auto cleanup = [&] {
    for (auto& p : ptr)
      if (p && o.api != "null") {
        ca::raw_delete(p);
        p = nullptr;
      }
    for (auto& p : dptr) p.clear();
    fakecuda_complete_all();
  };
  DeviceStats before{}, after{};
  for (int i = 0; i < o.bench + 1; i++) {  // run 0 is a warm-up
    if (o.cold) ca::emptyCache();
    fakecuda_counters_t c0, c1;
    fakecuda_counters(&c0);
    before = ca::getDeviceStats(0);
    auto cpu = [] {
      timespec ts;
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
      return ts.tv_sec * 1e9 + ts.tv_nsec;
    };
    double cpu0 = cpu();
    BenchResult r = o.free_on_other_thread ? bench_free_on_other_thread<false>(ops, ptr, o.inner)
                    : o.threads > 1        ? bench_threads(ops, t.ids.size(), o.threads, o.inner)
                    : o.api == "dataptr"   ? bench_dataptr(ops, dptr, o.inner)
                                           : bench_raw<false>(ops, ptr, o.inner, FreeHere{});
    double cpu_ns = cpu() - cpu0;
    after = ca::getDeviceStats(0);
    fakecuda_counters(&c1);
    cleanup();
    std::fill(ptr.begin(), ptr.end(), nullptr);
    BenchResult z = o.free_on_other_thread ? bench_free_on_other_thread<true>(ops, ptr, o.inner)
                                           : bench_raw<true>(ops, ptr, o.inner, Forget{});
    std::fill(ptr.begin(), ptr.end(), nullptr);
    allocs = r.allocs;
    ooms = r.ooms;
    double pp = r.ns / (double)r.allocs, nn = z.ns / (double)z.allocs;
    fprintf(out,
            "run %d%s ns_per_pair=%.2f loop_overhead=%.2f device_alloc=%" PRId64
            " device_free=%" PRId64 " events=%" PRIu64 " queries=%" PRIu64 "\n",
            i, i == 0 ? " (warm-up)" : "", pp, nn, after.num_device_alloc - before.num_device_alloc,
            after.num_device_free - before.num_device_free, c1.n_event_record - c0.n_event_record,
            c1.n_event_query - c0.n_event_query);
    if (i > 0) {
      per_pair.push_back(pp);
      null_pair.push_back(nn);
      cpu_pair.push_back(cpu_ns / (double)r.allocs);
    }
  }
  if (per_pair.empty()) return 0;
  auto mm = std::minmax_element(per_pair.begin(), per_pair.end());
  fprintf(out,
          "bench api=%s cold=%d threads=%d ops=%zu allocs=%" PRIu64 " ooms=%" PRIu64
          " runs=%d median_ns_per_pair=%.2f min=%.2f max=%.2f median_cpu=%.2f min_cpu=%.2f "
          "loop_overhead=%.2f\n",
          o.api.c_str(), (int)o.cold, o.threads, t.ops.size(), allocs, ooms, o.bench,
          median(per_pair), *mm.first, *mm.second, median(cpu_pair),
          *std::min_element(cpu_pair.begin(), cpu_pair.end()), median(null_pair));
  return 0;
}

static void usage() {
  fputs(
      "usage: oracle [options] < trace > output\n"
      "  --stats        stats line after every op\n"
      "  --no-final     no full stats and snapshot at the end\n"
      "  --no-oom-msg   print 'oom <id>' without the message\n"
      "  --history      record_memory_history; print its entries at the end\n"
      "  --cudalog      print the CUDA calls each op made ('> ...' lines)\n"
      "  --quiet        no line per op\n"
      "  --torch R      ignored: this is one release\n"
      "  --fraction F   setMemoryFraction(F) before the first op\n"
      "  --bench N      throughput mode: time N replays (plus one warm-up)\n"
      "  --threads K    throughput mode: K threads, each the whole trace, on its own streams\n"
      "  --free-on-other-thread  throughput mode with --threads 2: one thread replays the trace,\n"
      "                 the other frees its blocks\n"
      "  --single-thread  throughput mode: do not start the idle second thread\n"
      "  --inner K      throughput mode: walk the trace K times inside one timed run\n"
      "  --api raw|dataptr   what throughput mode calls\n"
      "  --cold         throughput mode: empty the cache before each replay (untimed)\n",
      stderr);
  exit(2);
}

int main(int argc, char** argv) {
  Options o;
  double fraction = -1;
  for (int i = 1; i < argc; i++) {
    std::string a = argv[i];
    auto val = [&]() -> const char* {
      if (i + 1 >= argc) usage();
      return argv[++i];
    };
    if (a == "--stats")
      o.stats_every = true;
    else if (a == "--no-final")
      o.final = false;
    else if (a == "--no-oom-msg")
      o.oom_msg = false;
    else if (a == "--history")
      o.history = true;
    else if (a == "--cudalog")
      o.cudalog = true;
    else if (a == "--quiet")
      o.quiet = true;
    else if (a == "--cold")
      o.cold = true;
    else if (a == "--fraction")
      fraction = atof(val());
    else if (a == "--bench")
      o.bench = atoi(val());
    else if (a == "--api")
      o.api = val();
    else if (a == "--threads")
      o.threads = atoi(val());
    else if (a == "--free-on-other-thread")
      o.free_on_other_thread = true;
    else if (a == "--single-thread")
      o.single_thread = true;
    else if (a == "--inner")
      o.inner = atoi(val());
    else if (a == "--torch")  // for programs that play several releases
      val();
    else
      usage();
  }
  if (o.free_on_other_thread && (o.threads != 2 || o.api != "raw")) usage();
  Trace t = parse(read_all(stdin));
  // Large output buffer.
  static char obuf[1 << 20];
  setvbuf(stdout, obuf, _IOFBF, sizeof obuf);
  try {
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
    ca::init(c10::cuda::device_count());
    c10::cuda::detail::init_p2p_access_cache(int64_t{c10::cuda::device_count()});
    if (fraction >= 0) ca::setMemoryFraction(fraction, 0);
    int rc = o.bench ? bench(t, o, stdout) : replay(t, o, stdout);
    fflush(stdout);
    exit(rc);
  } catch (const std::exception& e) {
    fflush(stdout);
    fprintf(stderr, "fatal: %s\n", e.what());
    return 1;
  }
}
