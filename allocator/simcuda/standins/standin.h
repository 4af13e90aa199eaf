/* What every stand-in begins with. CUDA is the major version of CUDA whose library this is. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The compute capability of the simulated device, 90 for 9.0: allocator/simcuda/src/control.rs. */
int fakecuda_cc(void);

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
