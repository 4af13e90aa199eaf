"""Runs one program, in one process for each of its ranks; record.py and gpu/waste.py start it.

    one.py NAME --figures FILE.json [--snapshot FILE.pickle.xz] [--limit BYTES] [--coalesce]
           [--steps] [--turns SOCKET]

The environment has PYTORCH_CUDA_ALLOC_CONF, or COALESCE_TORCH_ALLOC for --coalesce, which runs the
program on our allocator. Writes the figures of each device that the program used, also if it runs
out of memory; with --steps also the loss of each backward pass, the seconds between steps of
optimizers, each of which then waits for the device, and a hash of the weights at the end. With
--turns, the number of an open socket, it sends a byte before the program and after each step, and
goes on when a byte comes back.
STEPS_TIMES=N makes the training programs N times as long."""

import argparse
import hashlib
import importlib
import json
import lzma
import os
import pickle
import random
import sys
import time
import warnings
from pathlib import Path

sys.dont_write_bytecode = True
import torch
from programs import load
from torch.optim.optimizer import register_optimizer_step_post_hook

# The columns of measured.csv, and their names in torch.cuda.memory_stats().
FIGURES = {
    "allocations": "allocation.all.allocated",
    "peak_requested_bytes": "requested_bytes.all.peak",
    "peak_reserved_bytes": "reserved_bytes.all.peak",
    "retries": "num_alloc_retries",
    "ooms": "num_ooms",
}


class Steps:
    """The losses and the seconds of a program's steps, and the weights after the last. `wait_for_turn`
    is called before the first step and after each, and its time is no step's."""

    def __init__(self, wait_for_turn):
        self.losses, self.seconds = [], []
        self.optimizer = None
        self.wait_for_turn = wait_for_turn
        wait_for_turn()
        self.start = time.perf_counter()
        backward = torch.Tensor.backward

        def noted(loss, *args, **named):
            if loss.numel() == 1:
                self.losses.append(loss.item())
            return backward(loss, *args, **named)

        torch.Tensor.backward = noted
        register_optimizer_step_post_hook(self.end)

    def end(self, optimizer, *_):
        torch.cuda.synchronize()
        self.optimizer = optimizer
        self.seconds.append(time.perf_counter() - self.start)
        self.wait_for_turn()
        self.start = time.perf_counter()

    def report(self):
        return {"losses": self.losses, "seconds": self.seconds, "weights": self.weights()}

    def weights(self):
        """Needs no memory of the device."""
        digest = hashlib.sha256()
        for group in self.optimizer.param_groups if self.optimizer else ():
            for parameter in group["params"]:
                local = getattr(parameter, "_local_tensor", parameter)
                digest.update(local.detach().cpu().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()[:16]


def wait_for_turn(turns):
    """Tells the other end of the socket `turns` that this process waits, and waits for its answer."""
    if turns is not None:
        os.write(turns, b".")
        os.read(turns, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--figures", required=True)
    parser.add_argument("--snapshot")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--coalesce", action="store_true")
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--turns", type=int, help="a socket; steps wait for a byte from it")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.coalesce:
        sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "python"))
        import coalesce_torch

        coalesce_torch.enable()
    program = load()[options.name]
    for name in program.needs:
        importlib.import_module(name)
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
    problem, steps = None, None
    if options.steps:
        # Otherwise sums in another order give other losses, with any allocator.
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        torch.cuda.init()
        steps = Steps(lambda: wait_for_turn(options.turns))
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
        of_steps = steps.report() if steps else {}
        json.dump({"devices": used, "ended_by": problem, **of_steps}, file)
    sys.stdout.flush()
    # Without the interpreter's shutdown: graphs and pools may be freed in any order there.
    os._exit(0)


main()
