/* How much workspace cuDNN takes for a convolution, at least and at most, in bytes.

   The bounds follow from what algorithms keep in a workspace: copies in another layout, partial sums, transformed
   tensors. Their constants, and which algorithms cuDNN takes for which convolutions, were measured with cuDNN 9.19 on
   an NVIDIA H100 on 2026-11-27, so that 95 of 100 workspaces lie within: ../measured/README.md. */

#include "band.h"

/* The longest tensor of a convolution: batch, channels and three sizes. */
#define RANK 5

enum operation { NO_CONVOLUTION, FORWARD, BACKWARD_DATA, BACKWARD_FILTER };

/* cudnnDataType_t: what is not among these is taken for FLOAT. */
enum type { TYPE_FLOAT = 0, TYPE_DOUBLE = 1, TYPE_HALF = 2, TYPE_BFLOAT16 = 9 };

struct tensor {
  int64_t type, rank, sizes[RANK], strides[RANK];
};

struct convolution {
  enum operation operation;
  struct tensor x, w, y;
  int64_t stride[RANK - 2], dilation[RANK - 2];
};

/* What an engine multiplies with. Those with tensor cores read float as TF32. */
enum arithmetic { CUDA_CORES, TENSOR_CORES };

/* What kernels keep that split a sum over multiprocessors: 128 x 256 floats for each of the 132 of an H100. */
#define PARTIAL_SUMS (132 * 128 * 256 * 4.0)

/* Below this, kernels are chosen in ways that no bound here follows. */
#define SMALL (1 << 20)

static int64_t bytes_of(const struct tensor *t) {
  return t->type == TYPE_HALF || t->type == TYPE_BFLOAT16 ? 2 : t->type == TYPE_DOUBLE ? 8 : 4;
}

static double positions(const struct tensor *t) {
  double product = 1;
  for (int i = 2; i < t->rank; i++) product *= t->sizes[i];
  return product;
}

static int64_t groups(const struct convolution *c) {
  return c->w.sizes[1] > 0 ? most_of(1, c->x.sizes[1] / c->w.sizes[1]) : 1;
}

/* The channels of the input and of the output that are combined. */
static int64_t inputs(const struct convolution *c) { return c->x.sizes[1] / groups(c); }
static int64_t outputs(const struct convolution *c) { return c->y.sizes[1] / groups(c); }

static int is_depthwise(const struct convolution *c) { return groups(c) > 1 && groups(c) == c->x.sizes[1]; }

static int64_t largest_stride(const struct convolution *c) {
  int64_t most = 1;
  for (int i = 0; i < c->x.rank - 2; i++) most = most_of(most, c->stride[i]);
  return most;
}

static int is_dilated(const struct convolution *c) {
  for (int i = 0; i < c->x.rank - 2; i++)
    if (c->dilation[i] > 1) return 1;
  return 0;
}

static int is_pointwise(const struct convolution *c) { return positions(&c->w) == 1 && largest_stride(c) == 1; }

static int channels_last(const struct tensor *t) { return t->sizes[1] > 1 && positions(t) > 1 && t->strides[1] == 1; }

static int is_channels_last(const struct convolution *c) {
  return channels_last(&c->x) || channels_last(&c->y) || channels_last(&c->w);
}

/* Bytes of the three tensors. */
struct sizes {
  double x, w, y;
};

static double sum(struct sizes of) { return of.x + of.w + of.y; }

/* With channels padded to the 16 bytes that tensor cores read at once. */
static struct sizes padded(const struct convolution *c) {
  int64_t bytes = bytes_of(&c->x), unit = 16 / bytes, g = groups(c);
  int64_t in = parts(inputs(c), unit) * unit, out = parts(outputs(c), unit) * unit;
  return (struct sizes){
      (double)bytes * c->x.sizes[0] * positions(&c->x) * g * in,
      (double)bytes * positions(&c->w) * g * in * out,
      (double)bytes * c->y.sizes[0] * positions(&c->y) * g * out,
  };
}

/* Of these, what is copied: tensor cores read and write channels last, padded. But a convolution of single points
   multiplies matrices, in whichever order they are. */
static struct sizes copied(const struct convolution *c) {
  int64_t unit = 16 / bytes_of(&c->x), last = is_channels_last(c);
  int in_fits = inputs(c) % unit == 0, out_fits = outputs(c) % unit == 0;
  if (is_pointwise(c) && in_fits && out_fits && c->operation != BACKWARD_FILTER) return (struct sizes){0, 0, 0};
  struct sizes of = padded(c);
  if (in_fits && (last || positions(&c->x) == 1 || c->x.sizes[1] == 1)) of.x = 0;
  if (out_fits && (last || positions(&c->y) == 1 || c->y.sizes[1] == 1)) of.y = 0;
  if (in_fits && out_fits && (last || positions(&c->w) == 1 || inputs(c) == 1)) of.w = 0;
  return of;
}

/* Without padding. */
static double bytes_of_all(const struct convolution *c) {
  double x = c->x.sizes[0] * c->x.sizes[1] * positions(&c->x);
  double w = c->w.sizes[0] * c->w.sizes[1] * positions(&c->w);
  double y = c->y.sizes[0] * c->y.sizes[1] * positions(&c->y);
  return (x + w + y) * bytes_of(&c->x);
}

/* Whether FFT was tried in nearly all measured convolutions like this. */
static int is_certain_of_fft(const struct convolution *c) {
  int64_t height = c->w.sizes[2], width = c->w.sizes[3], stride = largest_stride(c);
  int is_padded = c->y.sizes[2] + height - 1 > c->x.sizes[2];
  if (groups(c) > 1 || c->w.sizes[0] * c->w.sizes[1] < 4096) return 0;
  if (c->operation == BACKWARD_DATA) return stride <= 2;
  return height <= 3 && width <= 3 && (is_padded || c->operation == BACKWARD_FILTER);
}

/* FFT, of float and of the first convolution of a network: complex numbers for the three tensors, whose images are
   padded to a power of 2, with the weights twice. Data gradients are computed in tiles of 32 x 32 instead, each phase
   of the stride by itself. */
static struct band fft(const struct convolution *c) {
  struct band none = {0, 0}, band;
  int64_t stride = largest_stride(c), height = c->w.sizes[2], width = c->w.sizes[3];
  double weights = 8.0 * c->w.sizes[0] * c->w.sizes[1];
  double x = 8.0 * c->x.sizes[0] * c->x.sizes[1], y = 8.0 * c->y.sizes[0] * c->y.sizes[1];
  int is_first = inputs(c) < 16 && positions(&c->w) >= 25 && c->operation == FORWARD;
  if (c->x.rank != 4 || is_dilated(c) || (c->x.type != TYPE_FLOAT && !is_first)) return none;
  if ((c->x.sizes[2] == 1) != (c->x.sizes[3] == 1)) return none;
  if (c->operation == BACKWARD_DATA) {
    int64_t rows = stride * (33 - parts(height, stride)), columns = stride * (33 - parts(width, stride));
    if (height < 3 || width < 3 || stride > 4 || rows <= 0 || columns <= 0) return none;
    int64_t tiles = parts(c->x.sizes[2], rows) * parts(c->x.sizes[3], columns);
    int64_t phases = stride * stride;
    double tiled = 32 * (32 / 2 + 1) * (phases * weights + most_of(phases, tiles) * x + tiles * y);
    band.least = tiles == 1 ? 0.97 * tiled : 0.55 * tiled;
    band.most = stride == 1 ? tiled : 1.03 * tiled + bytes_of_all(c);
  } else {
    int64_t rows = 16, columns = 16;
    while (rows < c->x.sizes[2] + height - 1) rows *= 2;
    while (columns < c->x.sizes[3] + width - 1) columns *= 2;
    if (stride > 1 || rows > 256 || columns > 256) return none;
    double spectrum = rows * (columns / 2 + 1), twice = spectrum * (2 * weights + x + most_of(x, y));
    band.least = c->operation == FORWARD ? 0.9 * twice : 0.95 * spectrum * 2 * weights;
    band.most = 1.02 * most_of(twice, spectrum * 2 * most_of(x, y));
  }
  if (!is_certain_of_fft(c)) band.least = 0;
  if (is_channels_last(c)) band.most += bytes_of_all(c);
  return band;
}

/* Plans with tensor cores. */
static struct band tensor_cores(const struct convolution *c) {
  double all = bytes_of_all(c), partial = (c->operation == BACKWARD_FILTER ? 1.5 : 0.5) * PARTIAL_SUMS;
  int64_t taps = positions(&c->w), stride = largest_stride(c), bytes = bytes_of(&c->x);
  struct sizes of = copied(c);
  struct band band = {0, sum(of) + partial};
  if (groups(c) > 1) return (struct band){0, 2 * sum(padded(c)) + 2 * PARTIAL_SUMS};
  if (is_pointwise(c) && c->operation == BACKWARD_FILTER && c->x.rank == 4) {
    /* Either the copies, or a partial sum for each image. */
    double images = 4.0 * c->x.sizes[0] * c->w.sizes[0] * c->w.sizes[1];
    band.most = least_of(most_of(images, PARTIAL_SUMS), band.most);
    if (positions(&c->x) > 1 && all > SMALL) band.least = least_of(images, sum(of));
    return band;
  }
  if (sum(of) > 0 && bytes == 4) band.most = most_of(band.most, all + partial);
  /* Few channels, or a small sum for each output, may be left to other units. TF32 may write channels first. */
  int is_long = inputs(c) * taps > (bytes == 2 ? 125 : 310) || stride > 1;
  if (bytes == 4 && c->operation == FORWARD && (stride > 1 || is_dilated(c))) of.y = 0;
  if (is_long && inputs(c) >= 16 && outputs(c) >= 16 && all > SMALL) band.least = sum(of);
  /* The first convolution of a network, of 7 x 7, whose images need no padding. */
  int is_first = inputs(c) < 16 && outputs(c) >= 64 && taps >= 49 && stride <= 2 && c->operation != BACKWARD_DATA;
  if (is_first && c->x.rank == 4 && !is_channels_last(c)) band.least = 0.8 * sum(padded(c));
  return band;
}

/* Plans without: they read channels first, mostly without a workspace. Weight gradients of 3 x 3 take Winograd's. */
static struct band cuda_cores(const struct convolution *c) {
  double all = bytes_of_all(c), most = all + SMALL;
  if (c->operation == BACKWARD_FILTER)
    most = positions(&c->w) == 9 && largest_stride(c) == 1 ? 4.5 * all : 1.1 * all + SMALL;
  else if (!is_channels_last(c) && groups(c) == 1)
    most = 0;
  return (struct band){0, most};
}

/* Convolutions of single channels. PyTorch computes many of these without cuDNN. */
static struct band depthwise(const struct convolution *c, int is_fastest) {
  double all = bytes_of_all(c);
  if (c->operation == BACKWARD_FILTER) return (struct band){0, (is_fastest ? 2.5 : 5) * all};
  return (struct band){0, (c->x.rank == 4 ? 0.05 : 1.1) * all};
}

/* The workspace of the plan that the heuristics put first, or of the fastest of those that were tried. */
static struct band plan(const struct convolution *c, enum arithmetic arithmetic, int is_fastest) {
  if (is_depthwise(c)) return depthwise(c, is_fastest);
  return arithmetic == TENSOR_CORES ? tensor_cores(c) : cuda_cores(c);
}

/* Among the plans that are tried for single channels is one that pads them like groups. */
static struct band tried_depthwise(const struct convolution *c) {
  double all = bytes_of_all(c), times = largest_stride(c) > 1 || c->x.sizes[1] % 8 ? 9 : 4.1;
  double partial = c->operation == BACKWARD_FILTER ? most_of(20e6, all) : SMALL;
  return (struct band){bytes_of(&c->x) == 2 && c->x.sizes[1] >= 16 ? 4 * all : 0, times * all + partial};
}

/* For others, one that copies all three tensors, unless tensor cores can read them, and some with larger copies. */
static struct band tried_copies(const struct convolution *c, enum arithmetic arithmetic) {
  double all = bytes_of_all(c), whole = sum(padded(c)), partial = 2 * PARTIAL_SUMS, times = 2;
  int is_thin = inputs(c) < 16 || outputs(c) < 16, is_data = c->operation == BACKWARD_DATA;
  int are_copied = !is_channels_last(c) || ((is_data || bytes_of(&c->x) == 4) && !is_thin);
  int is_certain = groups(c) == 1 && are_copied && arithmetic == TENSOR_CORES && all > 4 * SMALL;
  if (c->operation == BACKWARD_FILTER) {
    double sums = padded(c).w * 4 / bytes_of(&c->x);
    partial = most_of(2.5 * PARTIAL_SUMS, most_of(5 * sums, least_of(30 * sums, 250e6)));
    times = 1;
  } else if (is_pointwise(c) || largest_stride(c) >= 14) {
    times = 1;
  } else if (is_thin && positions(&c->w) >= 25) {
    times = 5;
  } else if (is_data && largest_stride(c) > 1) {
    times = 2.4;
  }
  if (groups(c) > 1) times *= 3;
  return (struct band){is_certain ? 0.95 * whole : 0, times * whole + partial};
}

/* The first convolution of a network, of 3 x 3 or 4 x 4 with a stride of 2: nine times its images in TF32. */
static struct band tried_first(const struct convolution *c, enum arithmetic arithmetic) {
  int64_t taps = positions(&c->w);
  int is_first = inputs(c) <= 8 && (taps == 9 || taps == 16) && largest_stride(c) == 2 && c->operation == FORWARD;
  if (!is_first || c->x.rank != 4 || bytes_of(&c->x) != 4 || arithmetic != TENSOR_CORES) return (struct band){0, 0};
  double images = 9 * padded(c).x + (is_channels_last(c) ? padded(c).y : 0);
  return (struct band){taps == 9 && inputs(c) <= 4 ? 0.97 * images : 0, images + PARTIAL_SUMS};
}

/* The largest workspace of the plans that PyTorch tries with torch.backends.cudnn.benchmark. */
static struct band trial(const struct convolution *c, enum arithmetic arithmetic) {
  struct band kept = plan(c, arithmetic, 1);
  if (is_depthwise(c)) return largest(largest(kept, fft(c)), tried_depthwise(c));
  struct band other = largest(tried_copies(c, arithmetic), tried_first(c, arithmetic));
  return largest(largest(kept, fft(c)), other);
}
