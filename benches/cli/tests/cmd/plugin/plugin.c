/* A pluggable allocator for PyTorch that passes every request to CUDA, and misbehaves on request. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

int cudaMalloc(void** address, size_t bytes);
int cudaFree(void* address);
int cudaMemGetInfo(size_t* free, size_t* total);
int cudaFunctionFromTheFuture(void);

static int is(const char* mode) {
  const char* wanted = getenv("MODE");
  return wanted != NULL && strcmp(wanted, mode) == 0;
}

void* my_malloc(ssize_t size, int device, void* stream) {
  static void* first = NULL;
  void* address = NULL;
  (void)stream;
  if (device != 0) return NULL;
  printf("allocates\n");
  fflush(stdout);
  if (is("crash")) *(volatile int*)8 = 1;
  if (is("abort")) abort();
  if (is("exit")) exit(3);
  if (is("hang")) sleep(1000);
  if (is("silent")) return NULL;
  if (is("future")) cudaFunctionFromTheFuture();
  if (is("host")) return malloc(size);
  if (is("overlap") && first != NULL) return (char*)first + 256;
  if (cudaMalloc(&address, size) != 0) return NULL;
  if (first == NULL) first = address;
  return address;
}

void my_free(void* address, ssize_t size, int device, void* stream) {
  (void)size, (void)device, (void)stream;
  cudaFree(address);
}

/* The same under other names. */
void* take(ssize_t size, int device, void* stream) { return my_malloc(size, device, stream); }
void give(void* address, ssize_t size, int device, void* stream) {
  my_free(address, size, device, stream);
}
