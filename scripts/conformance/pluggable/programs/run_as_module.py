"""python -m coalesce_torch runs an unchanged program.

ENABLE=0
"""

import os
import subprocess
import sys
import tempfile

from harness import PACKAGES

env = {**os.environ, "PYTHONPATH": PACKAGES}


def run(*arguments):
    command = [sys.executable, "-m", "coalesce_torch", *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "program.py")
    with open(path, "w") as file:
        file.write("import sys, torch, coalesce_torch\n")
        file.write("x = torch.ones(9, device='cuda')\n")
        file.write("print(sys.argv[1:], __name__, coalesce_torch.interface())\n")
    status, out, err = run(path, "--lr", "3")
    assert (status, out) == (0, "['--lr', '3'] __main__ complete\n"), (status, out, err)
    env["PYTHONPATH"] += os.pathsep + folder
    status, out, err = run("-m", "program", "-m")
    assert (status, out) == (0, "['-m'] __main__ complete\n"), (status, out, err)
assert run()[0] == 2 and "usage:" in run()[2]
assert run("missing.py")[0] == 2 and "no program missing.py" in run("missing.py")[2]
env["COALESCE_TORCH_ALLOC"] = "policy=pytroch"
assert run(__file__)[0] == 2
