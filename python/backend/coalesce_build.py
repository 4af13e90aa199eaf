"""Builds the wheel: the libraries with cargo and a C compiler, then everything else with maturin."""

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
DATA = ROOT / "python" / "coalesce_gpu.data"
COMMAND = DATA / "scripts" / "coalesce-gpu"
# Where `coalesce fits` looks for them, beside the folder of the program.
STANDINS = DATA / "data" / "share" / "coalesce" / "standins"

prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds a wheel that works for every Python on this system."""
    # An sdist does not keep that it is executable.
    COMMAND.chmod(0o755)
    _build_libraries()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds a wheel that refers to the Python files of the checkout."""
    _build_libraries()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def _build_libraries():
    """Puts each library where the wheel takes it from, if it can be built on this system."""
    if shutil.which("cargo") is None:
        sys.exit("coalesce-gpu is built from source here, which needs Rust: https://rustup.rs")
    # Other systems have no ELF linker.
    if sys.platform != "linux":
        return
    # The program, too, which maturin would build after them: alone, the libraries enable fewer features of the crates
    # that they share with it, so that these would be built twice.
    packages = [f"--package=coalesce-{name}" for name in ("torch", "simcuda", "gpu")]
    _cargo("build", "--release", "--locked", *packages)
    metadata = json.loads(_cargo("metadata", "--format-version", "1", "--no-deps", "--locked"))
    built = Path(metadata["target_directory"], "release")
    shutil.copyfile(built / LIBRARY, ROOT / "python" / "coalesce_torch" / LIBRARY)
    # Without those of an earlier build.
    shutil.rmtree(STANDINS, ignore_errors=True)
    build = ROOT / "allocator" / "simcuda" / "standins" / "build.py"
    subprocess.run([sys.executable, build, built / "libsimcuda.so", STANDINS], check=True)


def _cargo(*arguments):
    """Runs cargo and returns what it prints; its messages go to standard error."""
    done = subprocess.run(["cargo", *arguments], cwd=ROOT, stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"cargo {arguments[0]} failed, so that the wheel cannot be built")
    return done.stdout
