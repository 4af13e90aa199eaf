/* How much workspace cuFFT takes for Fourier transforms, at least and at most, in bytes.

   A transform keeps copies of the signal, and padded signals where a length has a large prime factor. How many bytes these are
   is exact. For which lengths cuFFT has kernels that need no copy is not known but for powers of two and products of small
   primes; others have a band. Measured with cuFFT of CUDA 13.0 on an NVIDIA H100 on 2026-11-27: ../measured/README.md. */

#include "band.h"

#define MOST_DIMENSIONS 3

struct transform {
  int rank;
  int is_real; /* on one side */
  int64_t sizes[MOST_DIMENSIONS], batch;
  int64_t bytes; /* of a real number */
};

/* Buffers start at multiples of this. */
#define PLACE_OF_BUFFER 1024

/* A length with a larger prime factor takes Bluestein's algorithm, which needs no buffer for lengths up to LONGEST_CHIRP. */
#define LARGEST_FACTOR 127
#define LONGEST_CHIRP 4096

/* A product of these primes has a kernel of its own up to a length. */
#define SMALL_FACTOR 7
#define MEDIUM_FACTOR 31
#define LONGEST_SMALL 1024

static struct band between(double least, double most) { return (struct band){least, most}; }
static struct band exactly(double bytes) { return between(bytes, bytes); }

static int64_t largest_factor(int64_t n) {
  int64_t largest = 1;
  for (int64_t i = 2; i * i <= n; i++)
    for (; n % i == 0; n /= i) largest = i;
  return n > 1 ? n : largest;
}

static int is_power_of_two(int64_t n) { return (n & (n - 1)) == 0; }
static int is_prime(int64_t n) { return n > 1 && largest_factor(n) == n; }
static int has_large_factor(int64_t n) { return largest_factor(n) > LARGEST_FACTOR; }
static int is_long_chirp(int64_t n) { return n > LONGEST_CHIRP && has_large_factor(n); }

static int is_product_of_2_3_5(int64_t n) {
  for (int64_t i = 2; i <= 5; i++)
    while (n % i == 0) n /= i;
  return n == 1;
}

/* Products of small primes for which cuFFT may lack a kernel. */
static int is_rare(int64_t n) { return n % 49 == 0 || n % 25 == 0; }

/* The two signals that Bluestein's algorithm keeps, padded. */
static double chirps(int64_t n, int64_t signals, int64_t bytes, int is_real) {
  int64_t padded = 2 * n - 1;
  while (!is_product_of_2_3_5(padded)) padded++;
  return 2 * aligned(signals * (padded + is_real) * 2 * bytes, PLACE_OF_BUFFER);
}

/* How many copies of a complex signal a transform along one axis needs. */
static struct band copies(int64_t n, int64_t bytes, int is_last) {
  int64_t factor = largest_factor(n), longest = bytes == 2 ? 8192 : bytes == 4 ? 32768 : 16384;
  if (factor > LARGEST_FACTOR || is_prime(n)) return exactly(0);
  if (n > longest) return exactly(1);
  if (is_power_of_two(n)) return exactly(0);
  if (is_last) return between(0, factor > MEDIUM_FACTOR || n > 16384);
  int is_short = n <= (bytes == 8 ? 600 : LONGEST_SMALL);
  if (factor <= SMALL_FACTOR && is_short && n % 49) return exactly(0);
  return between(factor > 41, 1);
}

/* The last axis of a transform with real numbers on one side. Of an even length, it is half as many complex numbers, which
   are copied in the size of either side. */
static struct band even_axis(int64_t n, int64_t signals, int64_t bytes) {
  int64_t factor = largest_factor(n), half = n / 2, longest = bytes == 2 ? 8192 : bytes == 4 ? 16384 : 4096;
  double real = (double)signals * n * bytes, complex = (double)signals * (half + 1) * 2 * bytes;
  if (is_long_chirp(half)) return exactly(real + chirps(half, signals, bytes, 1));
  if (is_power_of_two(n)) {
    if (n <= longest) return exactly(0);
    int may_be_none = n == 65536 && signals > 100;
    return between(may_be_none ? 0 : real, bytes == 4 ? complex : 2 * complex);
  }
  if (factor <= SMALL_FACTOR) {
    if (n <= LONGEST_SMALL) return between(0, is_rare(n) ? complex : 0);
    int may_be_none = n % 64 == 0 && n <= 4096;
    return between(may_be_none ? 0 : real, complex);
  }
  int is_certain = factor > MEDIUM_FACTOR || n > 4096;
  return between(is_certain ? real : 0, signals > 1000 ? real + complex : complex);
}

/* Of an odd length, two signals of a batch are the two parts of a complex one. */
static struct band odd_axis(int64_t n, int64_t signals, int64_t bytes) {
  int64_t factor = largest_factor(n), signal = signals * n * 2 * bytes;
  if (is_long_chirp(n)) return exactly(signal + chirps(n, signals, bytes, 1));
  int is_padded = factor > MEDIUM_FACTOR && factor <= LARGEST_FACTOR;
  double both = signal + aligned(signals * (n + is_padded) * 2 * bytes, PLACE_OF_BUFFER);
  if (factor <= SMALL_FACTOR && n <= LONGEST_SMALL) return between(0, is_rare(n) ? both : 0);
  if (factor <= LARGEST_FACTOR && is_prime(n)) return exactly(0);
  int is_certain = factor > MEDIUM_FACTOR || n > 2048;
  return between(is_certain ? both : 0, both);
}

/* The axes share one workspace. */
static struct band workspace(const struct transform *t) {
  struct band band = exactly(0);
  int complex_axes = t->rank - t->is_real;
  int64_t last = t->sizes[t->rank - 1], rows = 1;
  for (int i = 0; i < t->rank - 1; i++) rows *= t->sizes[i];
  int64_t elements = t->batch * rows * (t->is_real ? last / 2 + 1 : last);
  for (int i = 0; i < complex_axes; i++) {
    int64_t n = t->sizes[i];
    struct band times = copies(n, t->bytes, i == t->rank - 1);
    double signal = 2.0 * t->bytes * elements;
    band = largest(band, between(times.least * signal, times.most * signal));
    if (is_long_chirp(n)) band = largest(band, exactly(chirps(n, elements / n, t->bytes, 0)));
  }
  if (!t->is_real) return band;
  return largest(band, last % 2 ? odd_axis(last, parts(t->batch, 2) * rows, t->bytes)
                                : even_axis(last, t->batch * rows, t->bytes));
}
