"""Records the memory of a PyTorch program that `coalesce fits` runs.

Python imports it at its start, under the name sitecustomize. For each process that uses a GPU, it
writes PID.pickle, the memory snapshot, and PID.json, what else is known, to COALESCE_FITS_FOLDER.
If this python has no PyTorch, it writes its own path to without_torch.
When the steps of the optimizer repeat, further ones would request nothing new. Then the epoch ends,
if its batches come from a DataLoader, and the program goes on with what follows. Otherwise, if
earlier epochs that ended this way showed nothing new, or if a checkpoint follows, the program ends.
"""

import atexit
import importlib
import json
import os
import sys
import traceback
from pathlib import Path

import coalesce_fits_gpu
import coalesce_fits_libraries
import coalesce_fits_server
import coalesce_fits_world
from coalesce_fits_imports import After, run_hidden
from coalesce_fits_peaks import Peaks
from coalesce_fits_pinned import Pinned
from coalesce_fits_steps import Epochs, Steps

FOLDER = Path(os.environ["COALESCE_FITS_FOLDER"])
# Steps without a new peak of reserved memory after which the program ends; 0 if all of it runs.
MOST_STEPS = int(os.environ["COALESCE_FITS_STEPS"])
# Equal steps in a row after which the epoch or the program ends.
REPEATS = 3
# Enough for the steps of a large model. More would only be memory of this process.
MOST_EVENTS = 20_000_000

# Kinds of calls after which the memory of a real GPU may differ.
PLACES = ("values", "shapes", "routes", "workspaces")

# Ends the process at once.
EXIT = os._exit


class Watch:
    """What is known about this process."""

    # The only one, once torch is imported.
    current = None

    def __init__(self, torch):
        self.torch = torch
        # The process that uses the GPU, which may be a fork of the one that imported torch.
        self.process = None
        self.steps = Steps(torch)
        self.epochs = Epochs(self.steps)
        self.finished = False
        self.ended = "program"
        self.error = ""
        self.peaks = Peaks(torch)
        # Calls after which the memory of a real GPU may differ: their number by kind and line.
        self.calls = {kind: {} for kind in PLACES}
        values = importlib.import_module("coalesce_fits_values")
        self.line = values.line_of_program
        self.pinned = Pinned(torch, self.line)
        # For as long as the process runs, from before its first tensor on a GPU.
        self.values = values.Values(self.note, self.pinned.note)
        self.values.__enter__()

    def begin(self):
        """Called by PyTorch when it initializes CUDA, before the first tensor on a GPU."""
        self.process = os.getpid()
        if not coalesce_fits_gpu.choose_code(self.torch):
            refuse(self.torch.__version__, "no_code")
        memory = self.torch.cuda.memory
        memory._record_memory_history(context="alloc", stacks="python", max_entries=MOST_EVENTS)
        atexit.register(self.finish)
        # Some programs end this way to skip the destructors of libraries.
        os._exit = self.exit
        optimizer = importlib.import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_post_hook(self.stepped)
        self.epochs.begin()
        self.peaks.keep()
        print_error = sys.excepthook

        def failed(kind, error, trace):
            lacks_memory = any(isinstance(one, self.torch.OutOfMemoryError) for one in causes(error))
            self.ended = "out_of_memory" if lacks_memory else "error"
            self.error = "".join(traceback.format_exception(kind, error, trace))
            print_error(kind, error, trace)

        sys.excepthook = failed

    def note(self, kind):
        """Notes a call after which the memory of a real GPU may differ."""
        line = self.line()
        self.calls[kind][line] = self.calls[kind].get(line, 0) + 1

    def end_before(self, module, name):
        """Replaces a function that writes a checkpoint by one that ends the program after a short
        epoch. A checkpoint has no meaning here, and could replace one that has."""
        save = getattr(module, name)

        def saved(*args, **kwargs):
            if MOST_STEPS and self.epochs.tried > 0:
                self.stop("checkpoint")
            return save(*args, **kwargs)

        setattr(module, name, saved)

    def stepped(self, optimizer, args, kwargs):
        if self.steps.of(optimizer):
            self.steps.end()
            coalesce_fits_world.stepped()
            if not MOST_STEPS:
                return
            if self.steps.equal >= REPEATS:
                self.peaks.note()
                if not self.epochs.end(self.peaks.bytes["reserved"]):
                    self.stop("repeats")
            elif self.steps.without_growth() >= MOST_STEPS:
                self.stop("steps")

    def stop(self, why):
        """Ends the process at once, so that no code of the program reacts to it."""
        self.ended = why
        sys.stdout.flush()
        sys.stderr.flush()
        self.exit(0)

    def exit(self, status):
        self.finish()
        EXIT(status)

    def finish(self):
        # Not in a forked worker, and not twice.
        if os.getpid() != self.process or self.finished:
            return
        self.finished = True
        coalesce_fits_world.leave()
        self.peaks.note()
        memory = self.torch.cuda.memory
        memory._dump_snapshot(str(FOLDER / f"{self.process}.pickle"))
        self.write(memory.memory_stats().get("num_ooms", 0))

    def write(self, ooms):
        calls = {
            kind: [{"line": line, "times": times} for line, times in lines.items()]
            for kind, lines in self.calls.items()
        }
        report(
            self.torch.__version__,
            self.ended,
            steps=self.steps.number,
            short_epochs=self.epochs.ended,
            peak_reserved_bytes=self.peaks.bytes["reserved"],
            peak_requested_bytes=self.peaks.bytes["requested"],
            ooms=ooms,
            error=self.error,
            pinned=self.pinned.report(),
            in_use=coalesce_fits_libraries.in_use(),
            **calls,
        )


def causes(error):
    """An error and those that led to it. Pipelines raise an error of their own for each error of a stage."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def report(torch, ended, **known):
    """Writes what is known of this process, and zeros for the rest."""
    numbers = ("steps", "short_epochs", "peak_reserved_bytes", "peak_requested_bytes", "ooms")
    nothing = {**dict.fromkeys(numbers, 0), **dict.fromkeys(PLACES, []), "error": "", "pinned": None, "in_use": None}
    rank = coalesce_fits_world.RANK
    text = json.dumps({"torch": torch, "ended": ended, "rank": rank, **nothing, **known})
    # Its presence says that the process is done.
    (FOLDER / f"{os.getpid()}.json").write_text(text)


def refuse(torch, why):
    """Ends the process without an answer."""
    report(torch, why)
    EXIT(1)


def load_gpu(folder):
    """Before PyTorch, in this folder, is imported."""
    version = coalesce_fits_gpu.built(folder)
    lacking = coalesce_fits_gpu.lacks_cuda(version)
    if lacking:
        refuse(version["__version__"], lacking)
    coalesce_fits_gpu.load(version)


def no_torch():
    (FOLDER / "without_torch").write_text(sys.executable)


def watch(torch):
    (FOLDER / "with_torch").touch()
    # Unlike is_available(), this asks NVML: after a call of CUDA, PyTorch lets no fork of this process use the GPU.
    if not torch.cuda.device_count():
        # The program would train on the CPU instead.
        refuse(torch.__version__, "no_gpu")
    if not coalesce_fits_gpu.is_simulated():
        refuse(torch.__version__, "real_gpu")
    coalesce_fits_world.join(torch)
    Watch.current = watched = Watch(torch)
    watched.end_before(torch, "save")
    torch.cuda._lazy_call(watched.begin)


def watch_safetensors(module):
    # It imports torch.
    Watch.current.end_before(module, "save_file")


coalesce_fits_world.enter()
run_hidden()
sys.meta_path[:0] = [
    After("torch", watch, load_gpu, no_torch),
    After("safetensors.torch", watch_safetensors),
    *coalesce_fits_server.hooks(lambda: Watch.current),
]
if coalesce_fits_world.WORLD:
    sys.meta_path.insert(0, After("torch.distributed.launcher.api", coalesce_fits_world.launch_here))
