/* NCCL: collectives succeed and move nothing. A communicator knows its size and its rank, and takes device memory.

   How much was measured with NCCL 2.28.9 on two and four H100s with NVLink, without NVLS. Each small allocation takes a page. A
   channel has three, and a communicator two more. The first collective connects a ring over most channels, and the first message
   to or from another rank connects all of them to that rank. Groups of more ranks or machines may have other numbers of channels.

   GPUs that cannot access each other's memory (FAKE_PEERS) talk through memory of the host, over fewer channels: of four RTX PRO
   6000, vLLM logged 983 MiB in use with a communicator, some 50 more than contexts, kernels and what all communicators share. */

/* Of the wheel of PyTorch 2.11. */
int ncclGetVersion(int *version) {
  *version = 22809;
  return 0;
}

DESCRIBES(ncclGetErrorString)
DESCRIBES(ncclGetLastError)

#define PAGE (2 * MIB)
#define CHANNELS 32
#define CHANNELS_THROUGH_HOST 8
#define CHANNELS_OF_ONE_RANK 64
#define CHANNELS_OF_A_RING 24

/* Kernels and what else the first communicator takes, the first operation, and the first message. */
#define FIRST_COMMUNICATOR (106 * MIB)
#define FIRST_OPERATION (186 * MIB)
#define FIRST_MESSAGE (60 * MIB)

/* The buffers of a connection for the protocols LL and LL128. That of the third is NCCL_BUFFSIZE. */
#define SMALL_BUFFERS (512 * 1024 + 4915200)
#define DEFAULT_BUFFER (4 * MIB)

static void take(int64_t bytes) { fakecuda_take(FAKECUDA_NCCL, bytes); }

static int64_t setting(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  int64_t value = text ? atoll(text) : 0;
  return value > 0 ? value : otherwise;
}

static int64_t channels(int64_t most) {
  int64_t limit = setting("NCCL_MAX_CTAS", setting("NCCL_MAX_NCHANNELS", most));
  return limit < most ? limit : most;
}

static int64_t pages(int64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static int has_peers(void) { return setting("FAKE_PEERS", 0) > 0; }

/* The memory that a rank receives into, and that it sends from, for one channel. */
static int64_t to_receive(void) { return has_peers() ? pages(setting("NCCL_BUFFSIZE", DEFAULT_BUFFER) + SMALL_BUFFERS) : 0; }
static int64_t to_send(void) { return has_peers() ? PAGE : 0; }

struct communicator {
  int size;
  int rank;
  int64_t taken;
  char has_ring;
  /* Whether it is connected to send to each rank, and to receive from it. */
  char *sends, *receives;
};

static void connect(struct communicator *from, char *is_connected, int64_t bytes) {
  static int once;
  if (!once++) take(FIRST_OPERATION);
  if (*is_connected) return;
  *is_connected = 1;
  from->taken += bytes;
  take(bytes);
}

static int collective(struct communicator *on) {
  int64_t of_ring = channels(CHANNELS_OF_A_RING) * (to_send() + to_receive());
  connect(on, &on->has_ring, on->size > 1 ? of_ring : 0);
  return 0;
}

/* Messages between this rank and another, in one direction. */
static int message(struct communicator *on, int peer, char *connected, int64_t bytes) {
  static int once;
  if (peer < 0 || peer >= on->size || peer == on->rank) return 0;
  if (!once++) take(FIRST_MESSAGE);
  connect(on, &connected[peer], channels(CHANNELS) * bytes);
  return 0;
}

static int send(struct communicator *on, int peer) { return message(on, peer, on->sends, to_send()); }
static int receive(struct communicator *on, int peer) { return message(on, peer, on->receives, to_receive()); }

/* Messages of each rank to each. */
static int exchange(struct communicator *on) {
  for (int peer = 0; peer < on->size; peer++) {
    send(on, peer);
    receive(on, peer);
  }
  return 0;
}

int ncclAllReduce(any from, any to, size_t count, int type, int how, struct communicator *on, any stream) {
  return collective(on);
}

int ncclReduceScatter(any from, any to, size_t count, int type, int how, struct communicator *on, any stream) {
  return collective(on);
}

int ncclAllGather(any from, any to, size_t count, int type, struct communicator *on, any stream) { return collective(on); }

int ncclBroadcast(any from, any to, size_t count, int type, int root, struct communicator *on, any stream) {
  return collective(on);
}

int ncclBcast(any buffer, size_t count, int type, int root, struct communicator *on, any stream) { return collective(on); }

int ncclReduce(any from, any to, size_t count, int type, int how, int root, struct communicator *on, any stream) {
  return collective(on);
}

int ncclSend(any from, size_t count, int type, int peer, struct communicator *on, any stream) { return send(on, peer); }

int ncclRecv(any to, size_t count, int type, int peer, struct communicator *on, any stream) { return receive(on, peer); }

int ncclAlltoAll(any from, any to, size_t count, int type, struct communicator *on, any stream) { return exchange(on); }

int ncclGather(any from, any to, size_t count, int type, int root, struct communicator *on, any stream) {
  if (on->rank != root) return send(on, root);
  for (int peer = 0; peer < on->size; peer++) receive(on, peer);
  return 0;
}

int ncclScatter(any from, any to, size_t count, int type, int root, struct communicator *on, any stream) {
  if (on->rank != root) return receive(on, root);
  for (int peer = 0; peer < on->size; peer++) send(on, peer);
  return 0;
}

/* Memory that can be registered. */
int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int cuMemFree_v2(uint64_t address);

int ncclMemAlloc(uint64_t *address, size_t bytes) { return cuMemAlloc_v2(address, bytes) ? 1 : 0; }

int ncclMemFree(uint64_t address) { return cuMemFree_v2(address) ? 1 : 0; }

/* ncclUniqueId */
struct unique_id {
  char bytes[128];
};

static int make(struct communicator **made, int size, int rank) {
  static int once;
  struct communicator *new = malloc(sizeof *new);
  int64_t between = has_peers() ? CHANNELS : CHANNELS_THROUGH_HOST;
  int64_t bytes = (3 * channels(size > 1 ? between : CHANNELS_OF_ONE_RANK) + 2) * PAGE;
  *new = (struct communicator){size, rank, bytes, 0, calloc(size, 1), calloc(size, 1)};
  take(bytes + (once++ ? 0 : FIRST_COMMUNICATOR));
  *made = new;
  return 0;
}

static int end(struct communicator *ended) {
  if (!ended) return 0;
  take(-ended->taken);
  free(ended->sends);
  free(ended->receives);
  free(ended);
  return 0;
}

int ncclCommDestroy(struct communicator *ended) { return end(ended); }

int ncclCommAbort(struct communicator *ended) { return end(ended); }

int ncclCommInitRank(struct communicator **made, int size, struct unique_id id, int rank) {
  return make(made, size, rank);
}

int ncclCommInitRankConfig(struct communicator **made, int size, struct unique_id id, int rank, void *config) {
  return make(made, size, rank);
}

int ncclCommInitRankScalable(struct communicator **made, int size, int rank, int ids, struct unique_id *id,
                             void *config) {
  return make(made, size, rank);
}

/* How many ranks have the same color, other ranks know. */
int ncclCommSplit(struct communicator *from, int color, int key, struct communicator **made, void *config) {
  return make(made, from->size, from->rank);
}

int ncclCommCount(const struct communicator *of, int *size) {
  *size = of->size;
  return 0;
}

int ncclCommUserRank(const struct communicator *of, int *rank) {
  *rank = of->rank;
  return 0;
}

int ncclCommGetAsyncError(struct communicator *of, int *error) {
  *error = 0;
  return 0;
}
