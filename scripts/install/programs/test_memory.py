"""The GPU memory of the programs beside this file, compared with memory.txt.

pytest --gpu-memory-baseline memory.txt; with --gpu-memory-update, the file accepts what they need."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = sorted(set(Path(__file__).parent.glob("*.py")) - {Path(__file__)})


@pytest.mark.limit_gpu_memory("600 MiB")
@pytest.mark.limit_gpu_waste(50)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_needs_what_it_did(program):
    subprocess.run([sys.executable, program], check=True)
