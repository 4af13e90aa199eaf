#!/usr/bin/env python3
"""Checks `coalesce fits` with PyTorch: what it says equals what whole runs of the programs show.

    check.py --python "$(../conformance/setup-torch.sh)" --coalesce ../../target/release/coalesce

Each program runs whole on the simulated GPU, which gives the true peak of reserved memory, and
then under `coalesce fits`, which may end it early. The programs are those of ../predictions, and
some short ones. Prints a line for each; status 1 if one is off."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parents[1] / "predictions" / "programs.py"
MEMORY = "256GiB"
# Programs of ../predictions, and why a run of them ends.
KNOWN = {"cnn": "program", "evaluation": "program", "halving": "repeats"}

TRAIN = """
import os, torch
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(1000):
    loss = model(torch.randn(int(os.environ["BATCH"]) << 10, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
# Its evaluation needs more memory than its steps.
EVALUATE = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(4096, 1024))
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.AdamW(model.parameters())
peaks = []
def step(batch):
    model(batch.cuda()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
def evaluate():
    with torch.no_grad():
        for batch, in DataLoader(data, 4096):
            model(batch.cuda()).relu()
    peaks.append(torch.cuda.max_memory_reserved())
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
def loop():
    for number in range(20):
        step(torch.randn(16, 1024))
    evaluate()
def growing():
    for number in range(40):
        # No two steps in a row are equal. The twelfth is the largest.
        step(torch.randn(1024 * min(number // 2 + 1, 6) + 256 * (number % 2), 1024))
def epochs():
    loader = DataLoader(data, 64, num_workers=1, persistent_workers=True)
    for epoch in range(5):
        for batch, in loader:
            step(batch)
        evaluate()
def forever():
    loader = DataLoader(data, 64)
    batches = iter(loader)
    while True:
        try:
            step(next(batches)[0])
        except StopIteration:
            batches = iter(loader)
def saving():
    for batch, in DataLoader(data, 64):
        step(batch)
    evaluate()
    torch.save(model.state_dict(), "/dev/null")
def counted():
    batches = iter(DataLoader(data, 64))
    for number in range(64):
        step(next(batches)[0])
    evaluate()
globals()[sys.argv[1]]()
print(max(*peaks, 0, torch.cuda.max_memory_reserved()))
"""
# Libraries ask whether there is a torch before they import it.
SELECT = """
import importlib.util; importlib.util.find_spec("torch")
import torch
found = torch.ones(1000, device="cuda").nonzero()
if found.sum().item() > 0:
    torch.empty(1 << 20, device="cuda")
found[found > 0]
(found > 0).cpu()
torch.where(found > 0, found, found)
torch.nn.Conv2d(1, 1, 1).cuda()(torch.ones(1, 1, 1, 1, device="cuda"))
torch.fft.rfft(torch.ones(1000, device="cuda"))
# Labels stay known when a library moves them to the device that they are on already.
labels = torch.arange(10).cuda().to("cuda")
assert labels[labels > 6].numel() == 3
# Generation ends at its limit, whatever the tokens are.
says, none_left = torch.rand(10, device="cuda") > 0.5, labels >= 0
assert (says | none_left).all() and not (says & ~none_left).any()
"""
# Each way to pin memory.
PIN = """
import torch
held = torch.empty(300 << 20, dtype=torch.uint8, pin_memory=True)
copied = torch.ones(3 << 20, dtype=torch.uint8).pin_memory()
back = torch.empty(5 << 20, dtype=torch.uint8, device="cuda").to("cpu", non_blocking=True)
registered = torch.empty(1 << 20, dtype=torch.uint8)
torch.cuda.cudart().cudaHostRegister(registered.data_ptr(), registered.nbytes, 0)
for tensor in (held, copied, back, registered):
    assert tensor.is_pinned()
"""
# One rank of a job. A later one needs more.
WORLD = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Linear(2048, 2048).cuda()
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters())
held = torch.empty(dist.get_rank() + 1, 32 << 20, dtype=torch.uint8, device="cuda")
for _ in range(6):
    model(torch.ones(8, 2048, device="cuda")).sum().backward()
    optimizer.step()
"""
# What ranks tell each other arrives, also if they run one after the other.
TALK = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
rank, size = dist.get_rank(), dist.get_world_size()
together = size <= 8
given = ["from rank 0"] if rank == 0 else [None]
dist.broadcast_object_list(given)
assert given == ["from rank 0"]
names = [None] * size
dist.all_gather_object(names, rank)
assert names == (list(range(size)) if together else [rank] * size), names
if rank > 0:
    before = [None]
    dist.recv_object_list(before, rank - 1)
    assert before == [f"after {rank - 1}"]
if rank + 1 < size:
    dist.send_object_list([f"after {rank}"], rank + 1)
total = torch.tensor([rank + 1]).cuda()
dist.all_reduce(total)
assert total.item() == (size * (size + 1) // 2 if together else size * (rank + 1))
send = torch.arange(size).cuda() + rank
receive = torch.empty_like(send)
dist.all_to_all_single(receive, send)
send.zero_()
expected = [other + rank for other in range(size)] if together else [2 * rank] * size
assert receive.tolist() == expected, receive.tolist()
# More than the allocator rounds up.
torch.empty(10 + sum(expected), 1 << 20, dtype=torch.uint8, device="cuda")
# A router chooses each of four experts equally often.
chosen = torch.rand(6, 4, device="cuda").topk(2).indices
assert torch.bincount(chosen.flatten(), minlength=4).tolist() == [3] * 4
"""
# Pipelines raise an error of their own for each error of a stage.
WRAPPED = """
import torch
try:
    torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    raise RuntimeError("of a stage") from error
"""
# mp.spawn catches the errors of its processes.
SPAWN = """
import torch, torch.multiprocessing

def work(rank):
    torch.ones(1, device="cuda")
    raise ValueError("of a spawned process")

if __name__ == "__main__":
    torch.multiprocessing.spawn(work)
"""
# A helper may run under a python of its own.
HELPER = "subprocess.run([sys.argv[1], '-c', 'import torch'])"


def printed(*command):
    """What a command prints on the simulated GPU."""
    environment = {**os.environ, "FAKE_TOTAL_BYTES": MEMORY, "FAKE_ADDR": "cuda"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def true_peak(python, name):
    """The peak of reserved memory of a whole run, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "stats.json"
        printed(python, PROGRAMS, name, "--stats", stats)
        return json.loads(stats.read_text())["reserved_bytes.all.peak"]


def fits(coalesce, *arguments, **variables):
    """What `coalesce fits` answers, and its exit status."""
    command = [coalesce, "fits", "--json", *arguments]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 2:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stderr}")
    return json.loads(done.stdout), done.returncode


def checks(python, coalesce):
    """Yields what was checked, what was found and what was expected."""
    for name, ended in KNOWN.items():
        command = ["--", python, PROGRAMS, name, "--stats", "/dev/null"]
        answer, _ = fits(coalesce, "--memory", MEMORY, *command)
        found = answer["peak_reserved_bytes"], answer["ended"]
        yield name, found, (true_peak(python, name), ended)
    train = ["--", python, "-c", TRAIN]
    answer, status = fits(coalesce, "--memory", "4GiB", "--vary", "BATCH=1..64", *train)
    largest = answer["largest"]["value"]
    yield "the largest batch", (status, answer["ended"], answer["steps"]), (0, "repeats", 4)
    for batch, expected in ((largest, 0), (largest + 1, 1)):
        answer, status = fits(coalesce, "--memory", "4GiB", *train, BATCH=str(batch))
        yield f"a batch of {batch}", status, expected
    for name, flags, expected in (
        ("epochs", [], ("repeats", 12, 2)),
        ("forever", [], ("repeats", 7, 1)),
        ("saving", [], ("checkpoint", 4, 1)),
        ("saving", ["--whole"], ("program", 64, 0)),
        # It fails when there is no further batch, and runs again without that.
        ("counted", [], ("repeats", 4, 0)),
        ("counted", ["--whole"], ("program", 64, 0)),
        ("growing", ["--steps", "5"], ("steps", 17, 0)),
        ("loop", [], ("repeats", 4, 0)),
        ("loop", ["--whole"], ("program", 20, 0)),
    ):
        command = [python, "-c", EVALUATE, name]
        answer, _ = fits(coalesce, "--memory", MEMORY, *flags, "--", *command)
        found = [answer[key] for key in ("ended", "steps", "short_epochs")]
        yield " ".join([name, *flags]), tuple(found), expected
        if name == "epochs" or flags:
            peak = int(printed(*command))
            yield f"the peak of {name}", answer["peak_reserved_bytes"], peak
    answer, _ = fits(coalesce, "--memory", "4GiB", "--", python, "-c", SELECT)
    kinds = ("shapes", "values", "workspaces")
    found = [[place["line"] for place in answer[kind]] for kind in kinds]
    yield "what is unknown", found, [
        ["<string>:4", "<string>:7", "<string>:8"],
        ["<string>:5"],
        ["<string>:10", "<string>:11"],
    ]
    answer, status = fits(coalesce, "--memory", "2GiB", "--", python, "-c", WRAPPED)
    yield "an error that wraps another", (answer["verdict"]["kind"], status), ("too_large", 1)
    pinned = fits(coalesce, "--memory", "4GiB", "--", python, "-c", PIN)[0]["pinned"]
    found = [pinned[kind] >> 20 for kind in ("peak_bytes", "rounding_bytes")]
    lines = [holder["line"] for holder in pinned["holders"]]
    # 300, 3 and 5 MiB in powers of two, and 1 MiB that PyTorch did not pin.
    expected = [512 + 4 + 8 + 1, 212 + 1 + 3], ["<string>:3", "<string>:5", "<string>:4"]
    yield "pinned memory", (found, lines), expected
    torchrun = [python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python"]
    of_five = [*torchrun[:-1], "--nnodes", "5", "--no-python"]
    for world, launcher, program, expected in (
        (1, [], WORLD, [[0]]),
        (4, [], WORLD, [[3], [2], [1], [0]]),
        (4, torchrun, WORLD, [[3], [2], [1], [0]]),
        (9, of_five, WORLD, [[8], [4], [2], [1], [0]]),
        (4, [], TALK, [[3], [2], [1], [0]]),
        (9, [], TALK, [[8], [4], [2], [1], [0]]),
    ):
        command = [*launcher, python, "-c", program]
        answer, _ = fits(coalesce, "--memory", MEMORY, "--world", str(world), "--", *command)
        found = [ranks["ranks"] for ranks in answer["ranks"]]
        yield f"{world} ranks", found, expected
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        empty = Path(folder, "bin", "python")
        for name, starts, without in (
            ("no PyTorch", "import torch", True),
            ("no PyTorch in a helper", f"import subprocess, sys, torch; {HELPER}", False),
        ):
            runs = empty if without else python
            command = [coalesce, "fits", "--memory", MEMORY, "--", runs, "-c", starts, empty]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            said = f"runs {empty}, which has no PyTorch." in done.stderr
            yield name, (done.returncode, said), (2, without)
        program = Path(folder, "spawn.py")
        program.write_text(SPAWN)
        command = [coalesce, "fits", "--memory", MEMORY, "--", python, program]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = "ValueError: of a spawned process" in done.stderr
        yield "a spawned process fails", (done.returncode, said), (2, True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="with PyTorch on the simulated GPU")
    parser.add_argument("--coalesce", required=True, help="the program")
    args = parser.parse_args()
    failed = False
    for name, found, expected in checks(args.python, args.coalesce):
        is_right = found == expected
        failed |= not is_right
        print(f"{name}: {found}" + ("" if is_right else f", expected {expected}"), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
