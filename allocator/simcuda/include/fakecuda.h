// How the simulated device is steered, besides CUDA's own functions: allocator/simcuda/src/control.rs.
// Exported by the libcudart.so.13 and the libcuda.so.1 that are made from it.
#pragma once
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  uint64_t total;    // simulated capacity in bytes
  uint64_t foreign;  // bytes pretended to be used by somebody else
  uint64_t used;     // bytes of physical memory now held (malloc + cuMemCreate)
  uint64_t peak_used;
  uint64_t n_malloc, n_malloc_fail, n_free;
  uint64_t n_reserve, n_addrfree, n_create, n_create_fail, n_release;
  uint64_t n_map, n_unmap, n_setaccess;
  uint64_t n_event_create, n_event_record, n_event_query, n_event_sync, n_event_destroy;
  uint64_t n_stream_sync, n_device_sync, n_meminfo;
  uint64_t live_mallocs, live_handles, live_reservations;
} fakecuda_counters_t;

// The compute capability of the simulated device, 90 for 9.0.
int fakecuda_cc(void);

// Event model ---------------------------------------------------------------
// hold=0 (default): an event is complete as soon as it is recorded.
// hold=1: an event stays cudaErrorNotReady until completed explicitly
//         (fakecuda_complete) or by a stream/device/event synchronize.
void fakecuda_set_hold(int hold);
// Complete the oldest n pending records of one stream (n<0: all of them).
void fakecuda_complete(void* stream, int64_t n);
void fakecuda_complete_all(void);
// From now on, the threads with which PyTorch watches NCCL see only events that
// were recorded before the last call of this function.
void fakecuda_show_watchdogs(void);

// Capture model -------------------------------------------------------------
// Whether all streams look as if they were captured into a graph. Nothing is.
void fakecuda_set_capturing(int capturing);

// Memory model --------------------------------------------------------------
void fakecuda_set_total(uint64_t bytes);
void fakecuda_set_foreign(uint64_t bytes);
// The next n cudaMalloc / cuMemCreate calls report out of memory.
void fakecuda_fail_next(uint64_t n);
// What a copy of a single byte from the device reads as.
void fakecuda_set_bool(int value);
// What a copy of four or eight bytes from the device reads as. Without contents, as above.
void fakecuda_set_count(uint64_t value);
void fakecuda_counters(fakecuda_counters_t* out);
// Bytes of the pinned host memory that contains an address; 0 if it is not pinned.
uint64_t fakecuda_pinned_range(const void* addr);
// The most bytes of host memory that were pinned.
uint64_t fakecuda_peak_pinned(void);

// Memory of libraries --------------------------------------------------------
// With FAKE_LIBRARIES=1, CUDA and its libraries take memory of the device.
enum {
  FAKECUDA_CONTEXT,
  FAKECUDA_KERNELS,
  FAKECUDA_STREAMS,
  FAKECUDA_GRAPHS,
  FAKECUDA_CUBLAS,
  FAKECUDA_CUDNN,
  FAKECUDA_NCCL,
  FAKECUDA_OTHERS,
};
// A library takes bytes of the current device, or returns them if negative.
void fakecuda_take(int part, int64_t bytes);
// The most bytes of one device that were in use, by the program and by
// libraries, and what a part had taken then.
uint64_t fakecuda_peak_with_libraries(void);
uint64_t fakecuda_taken(int part);

// Call log ------------------------------------------------------------------
// When on, every state-changing call is appended as one text line; take()
// hands the accumulated text to cb and clears it.
void fakecuda_log_enable(int on);
void fakecuda_log_take(void (*cb)(const char* text, size_t len, void* ctx), void* ctx);

#ifdef __cplusplus
}
#endif
