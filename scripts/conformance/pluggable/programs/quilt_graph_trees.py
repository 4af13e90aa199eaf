"""quilt: trees of CUDA graphs through torch.compile.

PYTHONWARNINGS=ignore
COALESCE_TORCH_ALLOC=policy=quilt
"""

import gc
import warnings

import harness  # noqa: F401
import torch
import torch._dynamo
from torch import nn
from torch._inductor import config
from torch._inductor.cudagraph_trees import get_container

warnings.simplefilter("ignore")
torch._dynamo.config.suppress_errors = False
# The trees then compare the live blocks of their pool with what they expect after each graph.
config.triton.fast_path_cudagraph_asserts = config.triton.slow_path_cudagraph_asserts = True
start = torch.cuda.memory_reserved()
torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None)
model = nn.Sequential(*[nn.Linear(width, 700) for width in (256, 700, 700)]).cuda()
compiled = torch.compile(model, backend="cudagraphs", dynamic=False)
for rows in (32, 32, 64, 32, 64, 64, 16, 32, 3000, 3000, 16, 64):
    torch.compiler.cudagraph_mark_step_begin()
    compiled(torch.randn(rows, 256, device="cuda")).sum().backward()
    model.zero_grad(set_to_none=True)
manager = get_container(0).tree_manager
assert manager.new_graph_id().id > 7, "graphs were captured"
assert manager.debug_checkpointing_counter > 0, "checkpoints were restored"
allocated = set()
snapshot = torch.cuda.memory._snapshot()
for entry in snapshot["device_traces"][0]:
    if entry["action"] == "alloc":
        assert entry["addr"] not in allocated, entry
        allocated.add(entry["addr"])
    elif entry["action"] == "free_completed":
        allocated.discard(entry["addr"])
blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
assert allocated == {b["address"] for b in blocks if b["state"] == "active_allocated"}
del model, compiled, manager
torch._dynamo.reset()
gc.collect()
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == start, torch.cuda.memory_reserved()
