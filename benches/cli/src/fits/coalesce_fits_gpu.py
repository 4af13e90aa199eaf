"""Puts the simulated GPU below the PyTorch of this process.

The libraries that PyTorch needs are found by their names. A stand-in that is loaded first is taken
for each of NVIDIA's, so a PyTorch from pip runs unchanged."""

import ctypes
import importlib.metadata
import os
import runpy
from pathlib import Path

# Where the stand-ins are; empty if they are not installed.
FOLDER = os.environ.get("COALESCE_FITS_STANDINS", "")


def built(torch_folder):
    """What a PyTorch says about how it was built."""
    return runpy.run_path(str(Path(torch_folder, "version.py")))


def lacks_cuda(version):
    """Why a PyTorch cannot use a GPU of NVIDIA: "cpu_only", "rocm", or None if it can."""
    if version.get("hip"):
        return "rocm"
    return None if version.get("cuda") else "cpu_only"


def load(version):
    """Loads the stand-ins for the version of CUDA that a PyTorch, not yet imported, was built for."""
    cuda = version["cuda"]
    folder = Path(FOLDER, f"cuda{cuda.partition('.')[0]}")
    if not FOLDER or not folder.is_dir():
        return
    os.environ["FAKE_CUDNN_VERSION"] = cudnn_version()
    # Triton looks for the driver by itself.
    os.environ.setdefault("TRITON_LIBCUDA_PATH", FOLDER)
    for library in (*sorted(Path(FOLDER).glob("*.so.*")), *sorted(folder.glob("*.so.*"))):
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def is_simulated():
    """Whether the driver of this process is the simulated one."""
    return hasattr(ctypes.CDLL("libcuda.so.1"), "fakecuda_cc")


def choose_code(torch):
    """Says for which of the GPUs that a PyTorch has code its kernels are: those with the highest
    compute capability up to that of this GPU. False if it has none for this GPU."""
    wanted = ctypes.CDLL("libcuda.so.1").fakecuda_cc()
    found = [name.rstrip("af").partition("_")[2] for name in torch._C._cuda_getArchFlags().split()]
    usable = [int(number) for number in found if number.isdigit() and int(number) <= wanted]
    if not usable:
        return False
    os.environ["FAKE_BINARY_CC"] = str(max(usable))
    return True


def cudnn_version():
    """The version of the cuDNN that pip installed, as cuDNN gives it: 92600 for 9.26.0. PyTorch
    refuses one that is older than the one it was built with, so without any it is a high one."""
    for name in ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"):
        try:
            major, minor, patch = importlib.metadata.version(name).split(".")[:3]
        except (importlib.metadata.PackageNotFoundError, ValueError):
            continue
        return str(int(major) * 10000 + int(minor) * 100 + int(patch))
    return "99900"
