/* How much workspace cuDNN takes for a convolution, at least and at most.

   The bounds follow from what cuDNN's algorithms keep in a workspace; what each takes was measured with cuDNN 9.19 on an NVIDIA H100
   on 2026-11-27: ../measured/README.md. There, 95 of 100 workspaces lie within. Sizes are in bytes. */

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

struct band {
  double least, most;
};

/* The partial sums of a kernel that splits a sum over multiprocessors: 128 x 256 floats for each of the 132 of an H100. */
#define PARTIAL_SUMS (132 * 128 * 256 * 4.0)

static double most_of(double a, double b) { return a > b ? a : b; }
static double least_of(double a, double b) { return a < b ? a : b; }

static int64_t bytes_of(const struct tensor *t) {
  return t->type == TYPE_HALF || t->type == TYPE_BFLOAT16 ? 2 : t->type == TYPE_DOUBLE ? 8 : 4;
}

static double positions(const struct tensor *t) {
  double product = 1;
  for (int i = 2; i < t->rank; i++) product *= t->sizes[i];
  return product;
}

static int64_t groups(const struct convolution *c) { return c->w.sizes[1] > 0 ? c->x.sizes[1] / c->w.sizes[1] : 1; }

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

/* How many parts of a size cover a length. */
static int64_t parts(int64_t length, int64_t size) { return (length + size - 1) / size; }

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
  int64_t in = parts(c->x.sizes[1] / g, unit) * unit, out = parts(c->y.sizes[1] / g, unit) * unit;
  return (struct sizes){
      (double)bytes * c->x.sizes[0] * positions(&c->x) * g * in,
      (double)bytes * positions(&c->w) * g * in * out,
      (double)bytes * c->y.sizes[0] * positions(&c->y) * g * out,
  };
}

/* Tensor cores read and write channels last, padded: what is not in that form is copied. A convolution of single points needs no other order
   of its activations, as it multiplies matrices. */
static struct sizes copied(const struct convolution *c) {
  int64_t unit = 16 / bytes_of(&c->x), last = is_channels_last(c);
  int64_t in = c->x.sizes[1] / groups(c), out = c->y.sizes[1] / groups(c);
  int in_fits = in % unit == 0, out_fits = out % unit == 0;
  int is_filter = c->operation == BACKWARD_FILTER;
  if (is_pointwise(c) && in_fits && out_fits && !is_filter) return (struct sizes){0, 0, 0};
  struct sizes of = padded(c);
  if (in_fits && (last || positions(&c->x) == 1 || c->x.sizes[1] == 1)) of.x = 0;
  if (out_fits && (last || positions(&c->y) == 1 || c->y.sizes[1] == 1)) of.y = 0;
  if (in_fits && out_fits && (last || positions(&c->w) == 1 || in == 1)) of.w = 0;
  return of;
}

static double bytes_of_all(const struct convolution *c) {
  double elements = c->x.sizes[0] * c->x.sizes[1] * positions(&c->x) + c->w.sizes[0] * c->w.sizes[1] * positions(&c->w) +
                    c->y.sizes[0] * c->y.sizes[1] * positions(&c->y);
  return elements * bytes_of(&c->x);
}

/* Whether FFT was tried in nearly all measured convolutions like this. */
static int is_certain_of_fft(const struct convolution *c) {
  int64_t height = c->w.sizes[2], width = c->w.sizes[3], stride = largest_stride(c);
  int is_padded = c->y.sizes[2] + height - 1 > c->x.sizes[2];
  if (groups(c) > 1 || c->w.sizes[0] * c->w.sizes[1] < 4096) return 0;
  if (c->operation == BACKWARD_DATA) return stride <= 2;
  return height <= 3 && width <= 3 && (is_padded || c->operation == BACKWARD_FILTER);
}

/* FFT of float: complex numbers of the three tensors, whose images are padded to a power of 2, with the weights twice. Data gradients are
   computed in tiles of 32 x 32 instead, each phase of the stride by itself. */
static struct band fft(const struct convolution *c) {
  struct band none = {0, 0}, band;
  int64_t stride = largest_stride(c), height = c->w.sizes[2], width = c->w.sizes[3];
  double weights = 8.0 * c->w.sizes[0] * c->w.sizes[1];
  double x = 8.0 * c->x.sizes[0] * c->x.sizes[1], y = 8.0 * c->y.sizes[0] * c->y.sizes[1];
  if (c->x.rank != 4 || c->x.type != TYPE_FLOAT || is_dilated(c)) return none;
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
  int64_t taps = positions(&c->w), in = c->x.sizes[1] / groups(c), out = c->y.sizes[1] / groups(c), bytes = bytes_of(&c->x);
  struct sizes of = copied(c);
  struct band band = {0, sum(of) + partial};
  if (groups(c) > 1) {
    band.most = 2 * sum(padded(c)) + 2 * PARTIAL_SUMS;
  } else if (is_pointwise(c) && c->operation == BACKWARD_FILTER && c->x.rank == 4) {
    /* Either the copies, or a partial sum for each image. */
    double images = 4.0 * c->x.sizes[0] * c->w.sizes[0] * c->w.sizes[1];
    band.most = least_of(most_of(images, PARTIAL_SUMS), band.most);
    if (positions(&c->x) > 1 && all > (1 << 20)) band.least = 0.5 * least_of(images, sum(of));
  } else {
    if (sum(of) > 0 && bytes == 4) band.most = most_of(band.most, all + partial);
    int is_large = in * taps > (bytes == 2 ? 125 : 310) || largest_stride(c) > 1;
    if (bytes == 4 && c->operation == FORWARD) of.y = 0;
    if (is_large && in >= 16 && out >= 16 && all > (1 << 20)) band.least = sum(of);
    /* The first of a network, of 7 x 7: its images are not padded. */
    int is_first = in < 16 && out >= 64 && taps >= 49 && largest_stride(c) <= 2 && c->operation != BACKWARD_DATA;
    if (is_first && c->x.rank == 4 && !is_channels_last(c)) band.least = 0.8 * sum(padded(c));
  }
  return band;
}

/* Plans without: they read channels first, mostly without a workspace. */
static struct band cuda_cores(const struct convolution *c) {
  double all = bytes_of_all(c), most = all + (1 << 20);
  if (c->operation == BACKWARD_FILTER) most = positions(&c->w) == 9 && largest_stride(c) == 1 ? 4.5 * all : 1.1 * all + (1 << 20);
  else if (!is_channels_last(c) && groups(c) == 1) most = 0;
  return (struct band){0, most};
}

/* Convolutions of single channels. PyTorch computes many of these without cuDNN. */
static struct band depthwise(const struct convolution *c, int is_fastest) {
  double all = bytes_of_all(c);
  if (c->operation == BACKWARD_FILTER) return (struct band){0, (is_fastest ? 2.5 : 5) * all};
  return (struct band){0, c->x.rank == 4 ? 0.05 * all : 1.1 * all};
}

/* The workspace of the plan that the heuristics put first, or of the fastest of those that were tried. */
static struct band plan(const struct convolution *c, enum arithmetic arithmetic, int is_fastest) {
  if (is_depthwise(c)) return depthwise(c, is_fastest);
  return arithmetic == TENSOR_CORES ? tensor_cores(c) : cuda_cores(c);
}

/* The largest workspace of the plans that PyTorch tries with torch.backends.cudnn.benchmark. */
static struct band trial(const struct convolution *c, enum arithmetic arithmetic) {
  struct band band = plan(c, arithmetic, 1), transformed = fft(c);
  double all = bytes_of_all(c), whole = sum(padded(c)), sums = padded(c).w * 4 / bytes_of(&c->x);
  int filter = c->operation == BACKWARD_FILTER;
  if (is_depthwise(c)) {
    /* Its channels, padded as those of groups. */
    if (bytes_of(&c->x) == 2 && c->x.sizes[1] >= 16) band.least = 4 * all;
    band.most = most_of(band.most, 4.1 * all + (filter ? most_of(20e6, all) : 1 << 20));
  } else {
    int64_t in = c->x.sizes[1] / groups(c), out = c->y.sizes[1] / groups(c);
    int is_last = is_channels_last(c), is_thin = in < 16 || out < 16;
    /* One that copies everything was among them, unless all is in the form of tensor cores. */
    int copies = !is_last || (c->operation == BACKWARD_DATA || bytes_of(&c->x) == 4) && !is_thin;
    if (groups(c) == 1 && copies && arithmetic == TENSOR_CORES && all > (4 << 20)) band.least = most_of(band.least, 0.97 * whole);
    if (groups(c) > 1) whole *= 2;
    double partial = most_of(2 * PARTIAL_SUMS, most_of(5 * sums, least_of(18 * sums, 160e6)));
    int is_matrix = is_pointwise(c) || largest_stride(c) >= 14;
    double times = is_matrix ? 1 : c->operation == BACKWARD_DATA && largest_stride(c) > 1 ? 2.4 : 2;
    band.most = most_of(band.most, filter ? whole + partial : times * whole + 2 * PARTIAL_SUMS);
    /* The first of a network, of 3 x 3 or 4 x 4 and in TF32: nine times its images. */
    int64_t taps = positions(&c->w), is_first = in <= 8 && (taps == 9 || taps == 16) && largest_stride(c) == 2 && c->operation == FORWARD;
    if (is_first && c->x.rank == 4 && bytes_of(&c->x) == 4 && arithmetic == TENSOR_CORES) {
      double images = 9 * padded(c).x + (is_last ? padded(c).y : 0);
      if (taps == 9 && in <= 4) band.least = most_of(band.least, 0.97 * images);
      band.most = most_of(band.most, images + PARTIAL_SUMS);
    }
  }
  band.least = most_of(band.least, transformed.least);
  band.most = most_of(band.most, transformed.most);
  return band;
}
