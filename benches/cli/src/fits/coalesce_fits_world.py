"""One rank of a job of many GPUs, alone.

Collectives allocate the same memory without the other ranks. On GPUs, they go through PyTorch's own
NCCL backend to the stand-in for NCCL, which moves no data and waits for nobody. On CPUs, they go to
PyTorch's "fake" backend, which does the same. A collective of Python objects gives each rank the
object of this one."""

import contextlib
import importlib
import os

# The number of ranks and which of them this is; no number if the program runs as it is.
WORLD = int(os.environ.get("COALESCE_FITS_WORLD") or 0)
RANK = int(os.environ.get("COALESCE_FITS_RANK") or 0)

# The size of ncclUniqueId.
COMMUNICATOR_BYTES = 128
# PyTorch's watchdog must not wait for other ranks.
ALONE = {"TORCH_NCCL_ENABLE_MONITORING": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}


def enter():
    """Called before the program starts. A launcher starts several processes. The one whose local rank
    is that of RANK continues as RANK, and the others exit."""
    if not WORLD:
        return
    place = int(os.environ["LOCAL_RANK"])
    if place != RANK % int(os.environ["LOCAL_WORLD_SIZE"]):
        os._exit(0)
    os.environ.update(RANK=str(RANK), WORLD_SIZE=str(WORLD))


def join(torch):
    """Called once torch is imported."""
    if not torch.distributed.is_available():
        return
    ignore_other_parameters(torch.distributed)
    if not WORLD:
        return
    importlib.import_module("torch.testing._internal.distributed.fake_pg")
    os.environ.update(ALONE)
    module = importlib.import_module("torch.distributed.distributed_c10d")
    make_groups_alone(module)
    for name, alone in OBJECTS.items():
        setattr(module, name, alone)
        setattr(torch.distributed, name, alone)
    begin = module.init_process_group
    # The closure below keeps the store alive. A process group holds only its C++ part.
    store = store_alone(torch.distributed)

    def begin_alone(*args, **kwargs):
        # mp.spawn passes ranks as arguments.
        given = kwargs.get("rank", args[4] if len(args) > 4 else -1)
        here = kwargs.get("world_size", args[3] if len(args) > 3 else -1)
        if given >= 0 and here > 0 and given != RANK % here:
            os._exit(0)
        backend = kwargs.get("backend", args[0] if args else None)
        begin(backend, store=store, rank=RANK, world_size=WORLD)

    module.init_process_group = torch.distributed.init_process_group = begin_alone


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


def all_gather_object(object_list, obj, group=None):
    object_list[:] = [obj] * len(object_list)


def gather_object(obj, object_gather_list=None, *args, **kwargs):
    if object_gather_list:
        all_gather_object(object_gather_list, obj)


def broadcast_object_list(object_list, *args, **kwargs):
    pass


def scatter_object_list(output, given=None, *args, **kwargs):
    output[0] = given[0] if given else None


OBJECTS = {
    function.__name__: function
    for function in (all_gather_object, gather_object, broadcast_object_list, scatter_object_list)
}
