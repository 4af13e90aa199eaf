"""What ranks of a job tell each other: Python objects, and integers that the host knows.

NCCL's stand-in moves no data. A message is a file in a folder that all ranks share, so ranks that run
one after the other exchange messages, too. If a rank needs a message of one that has not run, it
starts that rank as a process of its own."""

import hashlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch.distributed as distributed

RANK = int(os.environ.get("COALESCE_FITS_RANK") or 0)
FOLDER = Path(os.environ.get("COALESCE_FITS_MESSAGES") or ".")
# Whether all ranks run at the same time.
TOGETHER = bool(os.environ.get("COALESCE_FITS_TOGETHER"))
# Seconds after which a message will not come.
PATIENCE = 300
# Seconds between two looks for a file.
PAUSE = 0.005

# What stands for a message that does not come.
MISSING = object()

# Messages so far by those who take part.
sent = {}
# The processes that this one started for their messages, by rank.
partners = {}


def number(name):
    """The number of a message among those of the same name. All who take part count alike."""
    sent[name] = sent.get(name, 0) + 1
    return f"{name}.{sent[name]}"


def put(name, value):
    # A rank that runs once more overwrites what it sent.
    handle, path = tempfile.mkstemp(dir=FOLDER)
    with os.fdopen(handle, "wb") as file:
        pickle.dump(value, file)
    os.replace(path, FOLDER / name)


def take(name, sender):
    """The message of a rank, or MISSING."""
    end = time.monotonic() + PATIENCE
    message = FOLDER / name
    while not message.exists():
        # It may have been sent between the two looks. A rank sends before it leaves.
        if (has_left(sender) and not message.exists()) or time.monotonic() > end:
            return MISSING
        time.sleep(PAUSE)
    return pickle.loads(message.read_bytes())


def has_left(rank):
    """Whether a rank sends nothing more. Starts one that does not run."""
    if TOGETHER:
        return (FOLDER / f"left.{rank}").exists()
    if runs(rank):
        return False
    if rank in partners:
        return True
    partners[rank] = partner(rank)
    note_running(rank, partners[rank].pid)
    return False


def note_running(rank, process):
    (FOLDER / f"running.{rank}").write_text(str(process))


def runs(rank):
    """Whether a process is this rank. Two ranks that wait for each other must not start each other."""
    try:
        process = (FOLDER / f"running.{rank}").read_text()
        state = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    # Its parent has not looked yet.
    return state != "Z"


def leave():
    (FOLDER / f"left.{RANK}").touch()


def partner(rank):
    """Starts this program as another rank, which ends with this process."""
    place = {"RANK": rank, "COALESCE_FITS_RANK": rank}
    place["LOCAL_RANK"] = rank % int(os.environ["LOCAL_WORLD_SIZE"])
    folder = tempfile.mkdtemp(dir=FOLDER)
    parent = {"COALESCE_FITS_FOLDER": folder, "COALESCE_FITS_PARENT": os.getpid()}
    environment = {name: str(value) for name, value in {**place, **parent}.items()}
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(
        sys.orig_argv, env={**os.environ, **environment}, stdin=nowhere, stdout=nowhere, stderr=nowhere
    )


def members(group):
    return distributed.get_process_group_ranks(group or distributed.group.WORLD)


def exchange(group, value):
    """Sends a value to all ranks of a group. Returns a function that returns what they sent, in their
    order. Alone, all send the same."""
    ranks = members(group)
    if not TOGETHER:
        return lambda: [value] * len(ranks)
    name = number(hashlib.sha256(str(ranks).encode()).hexdigest()[:16])
    put(f"{name}.{RANK}", value)
    return lambda: [value if rank == RANK else take(f"{name}.{rank}", rank) for rank in ranks]


def share(group, sender, value):
    """Sends a value from one rank to all others of a group. Returns a function that returns it."""
    name = number(f"from{sender}-" + hashlib.sha256(str(members(group)).encode()).hexdigest()[:16])
    if sender == RANK:
        put(name, value)
        return lambda: value
    return lambda: take(name, sender)


def send(receiver, value):
    put(number(f"from{RANK}to{receiver}"), value)


def receive(sender):
    """Returns a function that returns what the rank sends next."""
    name = number(f"from{sender}to{RANK}")
    return lambda: take(name, sender)


def place(group, rank, group_rank):
    """The rank that is given by its number in the job or in the group."""
    return members(group)[group_rank] if group_rank is not None else rank


def all_gather_object(object_list, obj, group=None):
    object_list[:] = [obj if value is MISSING else value for value in exchange(group, obj)()]


def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
    parts = exchange(group, obj)
    if object_gather_list:
        object_gather_list[:] = [obj if value is MISSING else value for value in parts()]


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
    value = share(group, place(group, src or 0, group_src), list(object_list))()
    if value is not MISSING:
        object_list[:] = value


def scatter_object_list(
    scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None
):
    value = share(group, place(group, src or 0, group_src), scatter_object_input_list)()
    own = members(group).index(RANK)
    scatter_object_output_list[0] = None if value is MISSING else value[own]


def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None, use_batch=False):
    send(place(group, dst, group_dst), list(object_list))


def recv_object_list(object_list, src=None, group=None, device=None, group_src=None, use_batch=False):
    sender = place(group, src, group_src)
    value = receive(sender)()
    if value is MISSING:
        raise RuntimeError(f"rank {sender} sent no objects to rank {RANK}")
    object_list[:] = value
    return sender


OBJECTS = [
    all_gather_object,
    gather_object,
    broadcast_object_list,
    scatter_object_list,
    send_object_list,
    recv_object_list,
]

if not TOGETHER:
    note_running(RANK, os.getpid())
