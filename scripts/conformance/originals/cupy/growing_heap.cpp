// Python objects of one size on a heap whose addresses only grow; nothing is used twice.
//
// CuPy chooses among equally large free chunks by the address of the object that stands for the
// chunk. On this heap that is the order in which the objects were made, and the choice can be
// repeated.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace {

PyMemAllocatorEx below;
size_t object_size;
char *heap_begin, *heap_next, *heap_end;

bool is_ours(const void* p) { return p >= heap_begin && p < heap_end; }

void* take() {
  constexpr size_t kAlignment = 16;
  if (static_cast<size_t>(heap_end - heap_next) < object_size + kAlignment) return nullptr;
  void* object = heap_next;
  heap_next += (object_size + kAlignment - 1) / kAlignment * kAlignment;
  return object;
}

void* heap_malloc(void*, size_t size) {
  return size == object_size ? take() : below.malloc(below.ctx, size);
}

void* heap_calloc(void*, size_t count, size_t size) {
  // Fresh pages are zero.
  return count * size == object_size ? take() : below.calloc(below.ctx, count, size);
}

void* heap_realloc(void*, void* p, size_t size) {
  if (!is_ours(p)) return below.realloc(below.ctx, p, size);
  void* moved = below.malloc(below.ctx, size);
  if (moved != nullptr) std::memcpy(moved, p, std::min(size, object_size));
  return moved;
}

void heap_free(void*, void* p) {
  if (!is_ours(p)) below.free(below.ctx, p);
}

}  // namespace

// Puts objects of `size` bytes on a heap of `room` bytes from now on. 0 if it could.
extern "C" int install(size_t size, size_t room) {
  void* pages = mmap(nullptr, room, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return -1;
  object_size = size;
  heap_begin = heap_next = static_cast<char*>(pages);
  heap_end = heap_begin + room;
  PyMem_GetAllocator(PYMEM_DOMAIN_OBJ, &below);
  PyMemAllocatorEx heap{nullptr, heap_malloc, heap_calloc, heap_realloc, heap_free};
  PyMem_SetAllocator(PYMEM_DOMAIN_OBJ, &heap);
  return 0;
}
