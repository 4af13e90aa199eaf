"""Builds the wheel: the library for PyTorch with cargo, then everything else with maturin."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import maturin
from maturin import build_sdist, prepare_metadata_for_build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = "libcoalesce_torch.so"
COMMAND = ROOT / "python" / "coalesce_gpu.data" / "scripts" / "coalesce-gpu"

prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds a wheel that works for every Python on this system."""
    # An sdist does not keep that it is executable.
    COMMAND.chmod(0o755)
    _build_library()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds a wheel that refers to the Python files of the checkout."""
    _build_library()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def _build_library():
    """Puts the library next to the Python module that loads it, where it can be built."""
    if shutil.which("cargo") is None:
        sys.exit("coalesce-gpu is built from source here, which needs Rust: https://rustup.rs")
    # Other systems have no ELF linker.
    if sys.platform != "linux":
        return
    _cargo("build", "--release", "--locked", "--package", "coalesce-torch")
    metadata = json.loads(_cargo("metadata", "--format-version", "1", "--no-deps", "--locked"))
    built = Path(metadata["target_directory"], "release", LIBRARY)
    shutil.copyfile(built, ROOT / "python" / "coalesce_torch" / LIBRARY)


def _cargo(*arguments):
    """Runs cargo and returns what it prints; its messages go to standard error."""
    done = subprocess.run(["cargo", *arguments], cwd=ROOT, stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"cargo {arguments[0]} failed, so that the wheel cannot be built")
    return done.stdout
