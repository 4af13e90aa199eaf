/* A minimal CUDAPluggableAllocator for tests/t_torch.py: make-believe addresses, counts. */
#include <stdint.h>
#include <sys/types.h>
static uint64_t next = 0x100000000000ull;
static int64_t n_alloc, n_free, live, rec, bad;
void *p_malloc(ssize_t n, int device, void *stream) {
  (void)device;
  (void)stream;
  n_alloc++;
  live += n;
  uint64_t a = next;
  next += (n + 511) & ~511ull;
  return (void *)a;
}
void p_free(void *p, size_t n, int device, void *stream) {
  (void)device;
  (void)stream;
  if (p) {
    n_free++;
    live -= n;
    if ((uint64_t)p < 0x100000000000ull || (uint64_t)p >= next) bad++;
  }
}
void p_record(void *p, void *stream) {
  (void)p;
  (void)stream;
  rec++;
}
int64_t p_stat(int k) {
  return k == 0 ? n_alloc : k == 1 ? n_free : k == 2 ? live : k == 3 ? rec : bad;
}
