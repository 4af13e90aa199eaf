"""enable() twice, and a device that does not exist."""

from harness import coalesce_torch, memory

coalesce_torch.enable()
assert coalesce_torch.is_enabled()
try:
    memory.memory_stats(200)
except RuntimeError as error:
    assert str(error) == "no device 200", error
else:
    raise SystemExit("no error")
