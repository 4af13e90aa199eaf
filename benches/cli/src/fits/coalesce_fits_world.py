"""One rank of a job of many GPUs.

Collectives allocate the same memory without the other ranks. On GPUs, they go through PyTorch's own
NCCL backend to the stand-in for NCCL, which moves no data and waits for nobody.

The ranks of a small job run at the same time, and their CPUs talk as always. Of a larger job, few
ranks run, each alone. Their collectives on CPUs go to PyTorch's "fake" backend, which does the same
as the stand-in."""

import contextlib
import ctypes
import functools
import importlib
import os
import signal
import time

# The number of ranks and which of them this is; no number if the program runs as it is.
WORLD = int(os.environ.get("COALESCE_FITS_WORLD") or 0)
RANK = int(os.environ.get("COALESCE_FITS_RANK") or 0)

# Whether all ranks run at the same time.
TOGETHER = bool(os.environ.get("COALESCE_FITS_TOGETHER"))

# The size of ncclUniqueId.
COMMUNICATOR_BYTES = 128
# Of prctl.
PR_SET_PDEATHSIG = 1
# In which a watchdog surely looks, as it does so every 0.1 s.
WATCHDOG_SECONDS = 0.25
# PyTorch's watchdog must not wait for other ranks.
ALONE = {"TORCH_NCCL_ENABLE_MONITORING": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}


def enter():
    """Called before the program starts. A launcher starts several processes. The one whose local rank
    is that of RANK continues as RANK, and the others exit."""
    if not WORLD:
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    end_with_parent()
    place = int(os.environ["LOCAL_RANK"])
    if place != RANK % int(os.environ["LOCAL_WORLD_SIZE"]):
        os._exit(0)
    os.environ.update(RANK=str(RANK), WORLD_SIZE=str(WORLD))


def end_with_parent():
    """A process that another rank started for its messages ends with it."""
    # Not for the processes that it starts.
    parent = os.environ.pop("COALESCE_FITS_PARENT", None)
    if parent:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):
            os._exit(0)


def launch_here(api):
    """Called once the module of torchrun's launcher is imported. It waits for no other machine, and
    takes a free port."""
    launch = api.launch_agent

    def launch_alone(config, *args):
        config.min_nodes = config.max_nodes = 1
        config.run_id = str(os.getpid())
        config.rdzv_backend, config.rdzv_endpoint, config.rdzv_configs = "c10d", "localhost:0", {}
        return launch(config, *args)

    api.launch_agent = launch_alone


def join(torch):
    """Called once torch is imported."""
    if not torch.distributed.is_available():
        return
    ignore_other_parameters(torch.distributed)
    if not WORLD:
        return
    os.environ.update(ALONE)
    module = importlib.import_module("torch.distributed.distributed_c10d")
    messages = importlib.import_module("coalesce_fits_messages")
    for function in messages.OBJECTS:
        for place in (module, torch.distributed):
            setattr(place, function.__name__, function)
    importlib.import_module("coalesce_fits_collectives").follow()
    if TOGETHER:
        store = torch.distributed.FileStore(str(messages.FOLDER / "store"), WORLD)
    else:
        importlib.import_module("torch.testing._internal.distributed.fake_pg")
        make_groups_alone(module)
        store = store_alone(torch.distributed)
    # From the start, nothing is seen.
    show_watchdogs()
    begin, end = module.init_process_group, module.destroy_process_group

    # DeepSpeed looks which arguments it has.
    @functools.wraps(begin)
    def begin_here(*args, **kwargs):
        # mp.spawn passes ranks as arguments.
        given = kwargs.get("rank", args[4] if len(args) > 4 else -1)
        here = kwargs.get("world_size", args[3] if len(args) > 3 else -1)
        if given >= 0 and here > 0 and given != RANK % here:
            os._exit(0)
        backend = kwargs.get("backend", args[0] if args else None)
        # With a device, communicators are made at once instead of when they are used.
        device = {name: kwargs[name] for name in ("device_id",) if name in kwargs}
        # The closure keeps the store alive. A process group holds only its C++ part.
        begin(backend, store=store, rank=RANK, world_size=WORLD, **device)

    def end_here(*args, **kwargs):
        show_watchdogs()
        end(*args, **kwargs)

    module.init_process_group = torch.distributed.init_process_group = begin_here
    module.destroy_process_group = torch.distributed.destroy_process_group = end_here


def show_watchdogs():
    """PyTorch's NCCL watchdogs see now which collectives are complete, and nothing later before the next
    call. They would otherwise free the tensors of collectives at a random time."""
    ctypes.CDLL("libcuda.so.1").fakecuda_show_watchdogs()


def stepped():
    """Called after a step of the optimizer."""
    if WORLD:
        show_watchdogs()
        time.sleep(WATCHDOG_SECONDS)


def leave():
    """Called when this rank ends."""
    if WORLD:
        show_watchdogs()
    if TOGETHER:
        importlib.import_module("coalesce_fits_messages").leave()


def ignore_other_parameters(distributed):
    """DistributedDataParallel checks that all ranks have the same parameters. The check fails here,
    because no data arrive from other ranks."""
    verify = getattr(distributed, "_verify_params_across_processes", None)

    def verify_nothing(*args, **kwargs):
        with contextlib.suppress(RuntimeError):
            verify(*args, **kwargs)

    distributed._verify_params_across_processes = verify_nothing


def make_groups_alone(module):
    """Replaces the backend for CPUs of each group that the program makes."""
    make = module._new_process_group_helper

    def make_alone(size, rank, ranks, backend, store, *args, **kwargs):
        backend = "nccl" if str(backend) == "nccl" else "cpu:fake,cuda:nccl"
        return make(size, rank, ranks, backend, store, *args, **kwargs)

    module._new_process_group_helper = make_alone


def store_alone(distributed):
    """A store that never waits. For a key that another rank would set, it returns zeros of the size of
    ncclUniqueId, which the stand-in for NCCL ignores."""

    class Store(distributed.Store):
        def __init__(self):
            super().__init__()
            self.values = {}

        def set(self, key, value):
            self.values[key] = value

        def get(self, key):
            return self.values.get(key, bytes(COMMUNICATOR_BYTES))

        def add(self, key, amount):
            total = int(self.values.get(key, 0)) + amount
            self.values[key] = str(total).encode()
            return total

        def check(self, keys):
            return all(key in self.values for key in keys)

        def wait(self, *args):
            pass

    return Store()
