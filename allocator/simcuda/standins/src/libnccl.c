/* NCCL: collectives succeed and move nothing. A communicator knows its size and its rank. */

/* Of the wheel of PyTorch 2.11. */
int ncclGetVersion(int *version) {
  *version = 22809;
  return 0;
}

DESCRIBES(ncclGetErrorString)
DESCRIBES(ncclGetLastError)

struct communicator {
  int size;
  int rank;
};

/* ncclUniqueId */
struct unique_id {
  char bytes[128];
};

static int make(struct communicator **made, int size, int rank) {
  *made = malloc(sizeof **made);
  **made = (struct communicator){size, rank};
  return 0;
}

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

FREES(ncclCommDestroy)
FREES(ncclCommAbort)
