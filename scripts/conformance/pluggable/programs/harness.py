"""What the programs of this folder share: they import it before they use CUDA.

It enables Coalesce, unless ALLOCATOR is `native`, or ENABLE is 0 because the program does it.
`check.py` sets the conditions of a program; run by itself, the program sets them itself.
"""

import os
import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from conditions import cases

if "UNDER_CONDITIONS" not in os.environ:
    # Some are read when the process starts.
    case = next(iter(cases(sys.modules["__main__"].__doc__ or "")), {})
    env = {**case, **os.environ, "UNDER_CONDITIONS": "1"}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], env)

PACKAGES = str(Path(__file__).resolve().parents[4] / "python")
sys.path.insert(0, PACKAGES)
import coalesce_torch
import torch

MB = 1 << 20
OURS = os.environ.get("ALLOCATOR") != "native"
if OURS and os.environ.get("ENABLE") != "0":
    coalesce_torch.enable()
    assert coalesce_torch.interface() == os.environ.get("INTERFACE", "complete")
# Whose memory_allocated() and the like are asked.
memory = coalesce_torch if OURS else torch.cuda
# What a program observes. Both allocators must say the same.
said = []


def bytes_on_gpu(n):
    return torch.empty(n, dtype=torch.uint8, device="cuda")


# An allocator of memory pools that asks the driver for each block.
OF_DRIVER = """
#include <dlfcn.h>
#include <stddef.h>
static void *call(const char *name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name); }
void *take(size_t bytes, int device, void *stream) {
  int (*allocate)(void **, size_t) = call("cuMemAlloc_v2");
  void *at = NULL;
  allocate(&at, bytes);
  return at;
}
void give(void *at, size_t bytes, int device, void *stream) {
  int (*release)(void *) = call("cuMemFree_v2");
  release(at);
}
"""


def allocator_of_driver():
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "library.so")
        command = ["cc", "-shared", "-fPIC", "-xc", "-", "-o", library, "-ldl"]
        subprocess.run(command, input=OF_DRIVER.encode(), check=True)
        return torch.cuda.memory.CUDAPluggableAllocator(str(library), "take", "give")


def record_history():
    torch.cuda.memory._record_memory_history(max_entries=10_000_000, context=None)


def frames_of_this_file(text, addresses, file=None):
    """The text of the mode `harden` with names for its addresses. Of the frames, only the functions of
    the program are kept, or those of another file."""
    file = file or sys.modules["__main__"].__file__
    lines = []
    for line in text.splitlines():
        if line.startswith("    "):
            place, function = line.rsplit(" in ", 1)
            if place.strip().rsplit(":", 1)[0] == file:
                lines.append("    " + function)
        elif not line.startswith("coalesce: compiling "):
            lines.append(re.sub(r"(bytes) at 0x[0-9a-f]+$", r"\1", line))
    text = "\n".join(lines)
    for address, name in addresses.items():
        text = text.replace(hex(address), name)
    return text


def report():
    """Ends a program that runs under both allocators: writes what must be equal to the file REPORT.

    Without REPORT, prints what a reader may want to see."""
    found = {
        "said": said,
        "snapshot": torch.cuda.memory._snapshot(),
        "stats": dict(torch.cuda.memory_stats()),
        "summary": torch.cuda.memory_summary(),
        "figures": [
            memory.memory_allocated(),
            memory.max_memory_allocated(0),
            memory.memory_reserved("cuda"),
            memory.max_memory_reserved(torch.device("cuda:0")),
        ],
    }
    if "REPORT" in os.environ:
        with open(os.environ["REPORT"], "wb") as file:
            pickle.dump(found, file)
    else:
        print(*said, found["summary"], sep="\n")
