/* How much workspace cuDNN takes for attention, in bytes, beside what the part of it that PyTorch contains lays out.

   Measured with cuDNN 9.19 on an NVIDIA H100 on 2026-11-27, without an exception: ../measured/README.md. */

/* A plan of attention takes this much, whatever its shapes. */
#define PLAN_OF_ATTENTION 256

/* The tensors of a plan start at multiples of this. */
#define PLACE_OF_TENSOR 128

/* An operation that sums a tensor, or takes its largest element, along the dimensions in which the result has size 1. */
struct reduction {
  struct tensor from, to;
};

/* The gradients of keys and values come for each head of the query first. Where several of them share a head of keys and
   values, the plan keeps the gradients until it sums them. */
static int64_t kept_for_reduction(const struct reduction *r) {
  int is_over_heads = r->from.rank == 4 && r->to.rank == 4 && r->from.sizes[1] > r->to.sizes[1];
  if (!is_over_heads) return 0;
  int64_t bytes = r->from.sizes[0] * r->from.sizes[1] * positions(&r->from) * bytes_of(&r->from);
  return aligned(bytes, PLACE_OF_TENSOR);
}
