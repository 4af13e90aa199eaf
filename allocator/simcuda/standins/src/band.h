/* What a library takes depends on the GPU and its version. A stand-in knows between which ends it lies. */
#pragma once

struct band {
  double least, most;
};

static double most_of(double a, double b) { return a > b ? a : b; }
static double least_of(double a, double b) { return a < b ? a : b; }

/* The larger of several plans. */
static struct band largest(struct band a, struct band b) {
  return (struct band){most_of(a.least, b.least), most_of(a.most, b.most)};
}

/* How many parts of a size cover a length. */
static int64_t parts(int64_t length, int64_t size) { return (length + size - 1) / size; }

/* A multiple of a size that is as long or longer. */
static int64_t aligned(int64_t length, int64_t size) { return parts(length, size) * size; }

/* The end of a band that is asked for: the least, which is the default, or the most. */
static int64_t end_of(struct band band) {
  const char *end = getenv("FAKE_WORKSPACES");
  return end && strcmp(end, "most") == 0 ? band.most : band.least;
}
