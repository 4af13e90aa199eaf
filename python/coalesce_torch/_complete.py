"""Coalesce as a complete implementation of PyTorch's C++ interface CUDAAllocator.

The C++ file in cpp/ is compiled against the headers of the installed PyTorch when first needed.
"""

import ctypes
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import torch

from ._library import text

_SOURCES = Path(__file__).resolve().parent / "cpp"

_installed = None  # PyTorch keeps a pointer into this library


class _CannotBuild(Exception):
    """Why the C++ file cannot be compiled."""


def install(library):
    """Makes the library PyTorch's allocator. Returns False, after a warning, if it cannot be built.

    Raises RuntimeError if PyTorch has used its own allocator already.
    """
    global _installed
    try:
        built = _compiled()
    except (_CannotBuild, OSError) as reason:
        warnings.warn(
            "CUDA graphs, torch.cuda.MemPool, stacks in the history and sharing tensors between "
            f"processes are not available under Coalesce: {reason}",
            stacklevel=4,
        )
        return False
    built.coalesce_install.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    built.coalesce_install.restype = ctypes.c_char_p
    entries = library.coalesce_history_entries()
    problem = built.coalesce_install(library.coalesce_interface(), entries)
    if problem is not None:
        raise RuntimeError(problem.decode())
    _installed = built
    for name in (
        "_accelerator_setAllocatorSettings",
        "_cuda_cudaCachingAllocator_set_allocator_settings",
    ):
        if hasattr(torch._C, name):
            setattr(torch._C, name, _applying(library, getattr(torch._C, name)))
    return True


def _applying(library, original):
    """Returns a function that changes PyTorch's settings, and then those of Coalesce."""

    def set_allocator_settings(settings):
        # Both apply what precedes an error.
        problem = text(library.coalesce_apply_settings(settings.encode()))
        original(settings)
        if problem is not None:
            raise RuntimeError(problem)

    return set_allocator_settings


def _compiled():
    """Returns the loaded library for the installed PyTorch."""
    # Not at the top: its modules do not exist everywhere, and this file is imported everywhere.
    from . import _cache

    command = _command()
    key = hashlib.sha256()
    for source in sorted(_SOURCES.rglob("*.*")):
        key.update(source.read_bytes())
    key.update(repr(command).encode() + _version(command[0]) + torch.__version__.encode())

    def build(path):
        print(f"coalesce: compiling for PyTorch {torch.__version__} (once)", file=sys.stderr)
        done = subprocess.run(
            [*command, "-o", str(path)], capture_output=True, text=True, cwd=_SOURCES
        )
        if done.returncode != 0:
            raise _CannotBuild(f"{shlex.join(command)} failed:\n{done.stderr.strip()[:2000]}")

    return _cache.load(f"torch-{torch.__version__}-{key.hexdigest()[:16]}", build)


def _command():
    """Returns the compiler's command line without its output."""
    release = tuple(map(int, torch.__version__.split(".")[:2]))
    torch_folder = Path(torch.__file__).resolve().parent
    headers = torch_folder / "include"
    if not (headers / "c10/cuda/CUDACachingAllocator.h").exists():
        raise _CannotBuild(f"PyTorch's headers are not in {headers}")
    # PyTorch 2.12 and later need C++20.
    standard = "c++20" if release >= (2, 12) else "c++17"
    return [
        *_compiler(),
        *(f"-std={standard}", "-O2", "-fPIC", "-shared", "-w", "cuda_allocator.cpp"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-DTORCH={release[0] * 100 + release[1]}",
        *("-isystem", str(headers), "-isystem", str(_cuda_headers())),
        *("-idirafter", "without_nvcc"),
        *(f"-L{torch_folder / 'lib'}", "-lc10", "-lc10_cuda"),
    ]


def _compiler():
    named = os.environ.get("CXX")
    if named:
        return shlex.split(named)
    found = next(filter(shutil.which, ("c++", "g++", "clang++")), None)
    if found is None:
        raise _CannotBuild("there is no C++ compiler (CXX, c++, g++ or clang++)")
    return [found]


def _version(compiler):
    try:
        return subprocess.run([compiler, "--version"], capture_output=True).stdout
    except OSError as error:
        raise _CannotBuild(f"the compiler {compiler} does not run: {error}") from None


def _cuda_headers():
    """Returns the folder of cuda_runtime_api.h: of PyTorch's packages, or of an installed CUDA."""
    folders = []
    packages = importlib.util.find_spec("nvidia")
    for package in packages.submodule_search_locations or () if packages else ():
        folders += [Path(package, "cu13"), Path(package, "cuda_runtime")]
    # Of an installed CUDA, whose version may be another one.
    folders += [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    folders += [Path(sys.prefix), Path(sys.prefix, "targets/x86_64-linux"), Path("/usr/local/cuda")]
    for folder in folders:
        if (folder / "include/cuda_runtime_api.h").exists():
            return folder / "include"
    raise _CannotBuild(
        "the headers of the CUDA runtime are not found; set CUDA_HOME, or install the package "
        f"nvidia-cuda-runtime of CUDA {torch.version.cuda}"
    )
