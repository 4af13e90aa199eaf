/* What every stand-in begins with. CUDA is the major version of CUDA whose library this is. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fakecuda.h"

#define MIB (1 << 20)

/* Takes device memory for the code of a library: what of it is loaded when needed, or all of it with CUDA_MODULE_LOADING=EAGER. */
static inline void take_code(int part, int64_t needed, int64_t all) {
  const char *loading = getenv("CUDA_MODULE_LOADING");
  fakecuda_take(part, loading && !strcmp(loading, "EAGER") ? all : needed);
}

/* Says once which function was called, if FAKE_TRACE_STUBS is set. */
static inline void note(const char *function, int *once) {
  if (*once) return;
  *once = 1;
  if (getenv("FAKE_TRACE_STUBS")) fprintf(stderr, "stub %s\n", function);
}

/* A function that only succeeds. */
#define SUCCEEDS(name)     \
  int name(void) {         \
    static int once;       \
    note(#name, &once);    \
    return 0;              \
  }

/* A function that makes an object without contents. */
#define CREATES(name)                \
  int name(void **object) {          \
    static int once;                 \
    note(#name, &once);              \
    if (object) *object = calloc(1, 256); \
    return 0;                        \
  }

/* A function that frees an object. */
#define FREES(name)          \
  int name(void *object) {   \
    free(object);            \
    return 0;                \
  }

/* A function that gives the text of an error. */
#define DESCRIBES(name) \
  const char *name(int error) { return error ? "simulated error" : "success"; }

/* An argument that a stand-in ignores. A size that follows it is found because each argument takes a register or eight bytes of
   the stack, whatever its type. */
typedef const void *any;
#define ANY_3 any a, any b, any c
#define ANY_4 ANY_3, any d
#define ANY_5 ANY_4, any e
#define ANY_6 ANY_5, any f
#define ANY_7 ANY_6, any g
#define ANY_8 ANY_7, any h
#define ANY_9 ANY_8, any i
#define ANY_10 ANY_9, any j
#define ANY_11 ANY_10, any k
#define ANY_12 ANY_11, any l
#define ANY_13 ANY_12, any m
#define ANY_16 ANY_13, any n, any o, any p
#define ANY_17 ANY_16, any q
#define ANY_19 ANY_17, any r, any s

/* A function that writes the size of a workspace to the argument after COUNT others. It writes 0: PyTorch leaves the size
   uninitialized, and would request what it finds there. */
#define NO_WORKSPACE(COUNT, type, name) \
  int name(ANY_##COUNT, type *size) {   \
    *size = 0;                          \
    return 0;                           \
  }

/* The same for two workspaces. */
#define NO_WORKSPACES(COUNT, name)                            \
  int name(ANY_##COUNT, size_t *on_device, size_t *on_host) { \
    *on_device = *on_host = 0;                                \
    return 0;                                                 \
  }
