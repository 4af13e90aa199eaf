"""The GPU of a test run: a real one, or a simulated one below the PyTorch of this process."""

import glob
import importlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

from .. import _program
from .._program import CoalesceError

# Modules for every process of a run, in PYTHONPATH: some have another python, without this package.
STARTUP = Path(__file__).parent / "startup"

# Bytes that the CUDA context takes, as `coalesce fits` assumes.
OF_CONTEXT = 512 << 20

SIMULATED_CUDA = "`pip install torch --index-url https://download.pytorch.org/whl/cu126`"
_LACKING = {
    "not_installed": "the simulated GPU is not installed; `pip install coalesce-gpu` brings it, on "
    "Linux with x86-64",
    "cpu_only": "PyTorch {torch} is built for the CPU alone; one for CUDA needs no GPU: "
    + SIMULATED_CUDA,
    "rocm": "PyTorch {torch} is built for AMD's ROCm, and the simulated GPU is one of NVIDIA's",
    "no_code": "PyTorch {torch} has no code for a GPU as old as this one; one that may: "
    + SIMULATED_CUDA,
}


class Device(NamedTuple):
    """The GPU on which tests run."""

    name: str
    """As `h100`; empty for a real GPU."""
    torch: Optional[str]
    """The version of PyTorch; None if it is not installed."""
    lacks: Optional[str]
    """Why the simulated GPU cannot be used, as far as it is known before PyTorch is imported."""

    @property
    def is_simulated(self) -> bool:
        return bool(self.name)

    @property
    def lacking(self) -> Optional[str]:
        """Why nothing is measured, in a sentence without its end; None if PyTorch has its GPU."""
        if self.torch is None:
            return "PyTorch is not installed"
        why = self.lacks or process().lacking
        if why:
            return _LACKING[why].format(torch=self.torch)
        torch = sys.modules.get("torch")
        if torch is not None and not torch.cuda.is_available():
            return f"PyTorch {self.torch} finds no GPU"
        return None

    def __str__(self) -> str:
        if self.is_simulated:
            return f"simulated {self.name}"
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            return str(torch.cuda.get_device_name())
        return "real GPU"


def process() -> Any:
    """The module that watches this process, once it was started."""
    return importlib.import_module("coalesce_tests_process")


def has_gpu() -> bool:
    """Whether this machine has a GPU of NVIDIA that is not hidden. Asks no driver: a process that
    was forked after that could not use the GPU."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return False
    return bool(glob.glob("/dev/nvidia[0-9]*")) or os.path.exists("/dev/dxg")


def start(device: str, *, simulated: bool) -> Device:
    """Gets this process and those that it starts ready for PyTorch's import.

    device: the GPU to simulate, as `coalesce fits --device` names it.

    Raises CoalesceError if PyTorch is imported already, or if there is no such device.
    """
    standins = _standins() if simulated else None
    if simulated:
        variables = {**_variables(device), "COALESCE_FITS_STANDINS": str(standins or "")}
        if sys.modules.get("torch") is not None and not is_started():
            raise CoalesceError(
                "PyTorch was imported before the simulated GPU was there; import it later. In "
                "pytest, another plugin did so, which `-p no:NAME` leaves out"
            )
        os.environ.update(variables)
        # Hides the devices of PyTorch, too.
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    _start_processes()
    process().tester = os.getpid()
    process().start()
    gpu = importlib.import_module("coalesce_fits_gpu")
    folder = torch_folder()
    built = {} if folder is None else gpu.built(folder)
    lacks = gpu.lacks_cuda(built) if simulated and folder is not None else None
    if simulated and standins is None:
        lacks = "not_installed"
    return Device(device if simulated else "", built.get("__version__"), lacks)


def is_started() -> bool:
    """Whether start() was called in this process, or in the one that started it."""
    return "coalesce_tests_process" in sys.modules


def _start_processes() -> None:
    """Lets each Python process that this one starts leave what it needed."""
    folder = tempfile.mkdtemp(prefix="coalesce-")
    os.environ["COALESCE_TESTS_FOLDER"] = folder
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [path for path in others if path and path != str(STARTUP)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(STARTUP), *paths])
    if str(STARTUP) not in sys.path:
        sys.path.append(str(STARTUP))


def stop(by: int) -> None:
    """Removes what the processes left. Does nothing but in the process that started them."""
    if os.getpid() == by:
        shutil.rmtree(os.environ.pop("COALESCE_TESTS_FOLDER", ""), ignore_errors=True)


def _variables(device: str) -> Dict[str, str]:
    """What the simulated CUDA and the modules of `coalesce fits` read."""
    gpu = _gpus().get(_typed(device))
    if gpu is None:
        known = ", ".join(sorted(_gpus()))
        raise CoalesceError(f"unknown GPU '{device}'; expected one of {known}")
    major, minor = gpu["capability"]
    return {
        "FAKE_TOTAL_BYTES": str(int(gpu["memory_gib"] * (1 << 30))),
        "FAKE_FOREIGN_BYTES": str(OF_CONTEXT),
        "FAKE_ADDR": "cuda",
        "FAKE_CC": f"{major}.{minor}",
        "FAKE_MULTIPROCESSORS": str(gpu["multiprocessors"]),
        "FAKE_WORKSPACES": "least",
        "COALESCE_FITS_READS": "zeros",
        "COALESCE_FITS_SELECTS": "none",
    }


def _gpus() -> Dict[str, Any]:
    """The GPUs by the names that people type, without spaces and hyphens."""
    with open(STARTUP / "gpus.json", encoding="utf-8") as file:
        return {_typed(gpu["name"]): gpu for gpu in json.load(file)}


def _typed(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def _standins() -> Optional[Path]:
    """The folder with the simulated GPU, where `coalesce fits` finds it; None if it is not there."""
    named = os.environ.get("COALESCE_STANDINS")
    try:
        beside = Path(_program.find()).resolve().parent.parent / "share" / "coalesce" / "standins"
    except CoalesceError:
        return None
    folder = Path(named).resolve() if named else beside
    return folder if (folder / "libcuda.so.1").is_file() else None


def torch_folder() -> Optional[Path]:
    """Where PyTorch is installed, without importing it."""
    torch = sys.modules.get("torch")
    spec = importlib.util.find_spec("torch") if torch is None else torch.__spec__
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent
