"""Runs one program, in one process for each of its ranks; record.py starts it.

    one.py NAME --figures FILE.json [--snapshot FILE.pickle.xz] [--limit BYTES]

The environment has PYTORCH_CUDA_ALLOC_CONF. Writes the figures of each device that the program
used, also if it runs out of memory."""

import argparse
import json
import lzma
import os
import pickle
import random
import sys
import warnings

sys.dont_write_bytecode = True
import torch
from programs import load

# The columns of measured.csv, and their names in torch.cuda.memory_stats().
FIGURES = {
    "allocations": "allocation.all.allocated",
    "peak_requested_bytes": "requested_bytes.all.peak",
    "peak_reserved_bytes": "reserved_bytes.all.peak",
    "retries": "num_alloc_retries",
    "ooms": "num_ooms",
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--figures", required=True)
    parser.add_argument("--snapshot")
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    program = load()[options.name]
    if options.snapshot:
        torch.cuda.memory._record_memory_history(context=None, max_entries=10_000_000)
    if options.limit:
        os.environ["LIMIT_BYTES"] = str(options.limit)
        device = int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(options.limit / total, device)
    random.seed(int(os.environ.get("RANK", 0)))
    torch.manual_seed(0)
    # The simulated device has no attention by cuDNN.
    torch.backends.cuda.enable_cudnn_sdp(False)
    problem = None
    try:
        program.run()
    except torch.OutOfMemoryError as error:
        problem = str(error).partition("\n")[0]
    used = {}
    for device in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(device)
        if stats.get("reserved_bytes.all.peak", 0) > 0:
            used[device] = {column: stats.get(name, "") for column, name in FIGURES.items()}
            for column in ("allocations", "peak_requested_bytes"):
                # The device's own pool does not count them.
                used[device][column] = used[device][column] or ""
    if options.snapshot:
        with lzma.open(options.snapshot, "wb", preset=6) as file:
            pickle.dump(torch.cuda.memory._snapshot(), file)
    with open(options.figures, "w") as file:
        json.dump({"devices": used, "ended_by": problem}, file)
    sys.stdout.flush()
    # Without the interpreter's shutdown: graphs and pools may be freed in any order there.
    os._exit(0)


main()
