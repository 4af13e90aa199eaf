/* How much workspace cuFFT takes for Fourier transforms, at least and at most, in bytes.

   Measured with cuFFT 12.0 on an NVIDIA H100 on 2026-11-27: ../measured/README.md. Known is what a transform keeps: copies of
   the signal, and padded signals where a length has a large prime factor. For which lengths cuFFT has kernels that need no
   copy is not known but for powers of two and products of small primes, so for others there is a band. */

#include "band.h"

#define MOST_DIMENSIONS 3

struct transform {
  int rank;
  int is_real; /* on one side */
  int64_t sizes[MOST_DIMENSIONS], batch, bytes; /* of a real number */
};

/* Buffers start at multiples of this. */
#define PLACE_OF_BUFFER 1024

/* Lengths with a larger prime factor take Bluestein's algorithm: in shared memory up to LONGEST_CHIRP. */
#define LARGEST_FACTOR 127
#define LONGEST_CHIRP 4096

static int64_t largest_factor(int64_t n) {
  int64_t largest = 1;
  for (int64_t i = 2; i * i <= n; i++)
    for (; n % i == 0; n /= i) largest = i;
  return n > 1 ? n : largest;
}

static int is_power_of_two(int64_t n) { return (n & (n - 1)) == 0; }
static int is_prime(int64_t n) { return n > 1 && largest_factor(n) == n; }

/* Products of small primes for which cuFFT may lack a kernel. */
static int is_rare(int64_t n) { return n % 49 == 0 || n % 25 == 0; }

static int has_large_factor(int64_t n) { return largest_factor(n) > LARGEST_FACTOR; }

/* The length to which Bluestein's algorithm pads: a product of 2, 3 and 5. */
static int64_t padded_length(int64_t n) {
  int64_t length = 2 * n - 1;
  while (largest_factor(length) > 5) length++;
  return length;
}

/* The two signals that Bluestein's algorithm keeps. */
static double chirps(int64_t n, int64_t signals, int64_t bytes, int is_real) {
  return 2 * aligned(signals * (padded_length(n) + is_real) * 2 * bytes, PLACE_OF_BUFFER);
}

static struct band copies(double least, double most) { return (struct band){least, most}; }

/* How many copies of a complex signal a transform along one axis needs. */
static struct band copies_along(int64_t n, int64_t bytes, int is_last) {
  int64_t factor = largest_factor(n);
  if (factor > LARGEST_FACTOR || is_prime(n)) return copies(0, 0);
  if (n > (bytes == 2 ? 8192 : bytes == 4 ? 32768 : 16384)) return copies(1, 1);
  if (is_power_of_two(n)) return copies(0, 0);
  if (is_last) return copies(0, factor > 31 || n > 16384);
  int is_short = n <= (bytes == 8 ? 600 : 1024);
  if (factor <= 7 && is_short && n % 49) return copies(0, 0);
  return copies(factor > 41, 1);
}

/* The last axis of a transform with real numbers on one side. Of an even length, it is half as many complex numbers. */
static struct band even_axis(int64_t n, int64_t signals, int64_t bytes) {
  int64_t factor = largest_factor(n), half = n / 2;
  double real = (double)signals * n * bytes, complex = (double)signals * (half + 1) * 2 * bytes;
  if (has_large_factor(half) && half > LONGEST_CHIRP) {
    double all = real + chirps(half, signals, bytes, 1);
    return copies(all, all);
  }
  if (is_power_of_two(n) && n <= (bytes == 2 ? 8192 : bytes == 4 ? 16384 : 4096)) return copies(0, 0);
  if (is_power_of_two(n)) return copies(n == 65536 && signals > 100 ? 0 : real, bytes == 4 ? complex : 2 * complex);
  if (factor <= 7 && n <= 1024) return copies(0, is_rare(n) ? complex : 0);
  if (factor <= 7) return copies(n % 64 == 0 && n <= 4096 ? 0 : real, complex);
  int may_copy_twice = signals > 1000;
  return copies(factor > 31 || n > 4096 ? real : 0, may_copy_twice ? real + complex : complex);
}

/* Of an odd length, two signals of a batch are the two parts of a complex one. */
static struct band odd_axis(int64_t n, int64_t signals, int64_t bytes) {
  int64_t factor = largest_factor(n), signal = signals * n * 2 * bytes;
  if (n > LONGEST_CHIRP && has_large_factor(n)) {
    double all = signal + chirps(n, signals, bytes, 1);
    return copies(all, all);
  }
  int64_t copied = factor > 31 && !has_large_factor(n) ? n + 1 : n;
  double all = signal + aligned(signals * copied * 2 * bytes, PLACE_OF_BUFFER);
  if (factor <= 7 && n <= 1024) return copies(0, is_rare(n) ? all : 0);
  if (factor <= LARGEST_FACTOR && is_prime(n)) return copies(0, 0);
  return copies(factor > 31 || n > 2048 ? all : 0, all);
}

static struct band workspace(const struct transform *t) {
  struct band band = copies(0, 0);
  int64_t last = t->sizes[t->rank - 1], rows = 1, is_odd = last % 2;
  for (int i = 0; i < t->rank - 1; i++) rows *= t->sizes[i];
  int64_t columns = t->is_real ? last / 2 + 1 : last;
  double signal = 2.0 * t->bytes * t->batch * rows * columns;
  for (int i = 0; i < t->rank - t->is_real; i++) {
    int64_t n = t->sizes[i];
    struct band times = copies_along(n, t->bytes, i == t->rank - 1);
    double chirp = has_large_factor(n) && n > LONGEST_CHIRP
                       ? chirps(n, t->batch * rows * columns / n, t->bytes, 0)
                       : 0;
    band = largest(band, copies(times.least * signal + chirp, times.most * signal + chirp));
  }
  if (!t->is_real) return band;
  return largest(band, is_odd ? odd_axis(last, parts(t->batch, 2) * rows, t->bytes)
                              : even_axis(last, t->batch * rows, t->bytes));
}
