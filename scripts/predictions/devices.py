"""Where the programs run: on the fake device, or on a part of a GPU."""

import hashlib
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs.py"
FRACTION = "per_process_memory_fraction"


def run(command, env=None):
    """Runs a command and returns what it prints; ends the script if it fails."""
    command = [str(word) for word in command]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise SystemExit(f"{' '.join(command)}\nexited with status {done.returncode}: {said}")
    return done.stdout


def digest(*files):
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()


def size(text):
    """Bytes: 8G, 2560M."""
    number, unit = re.fullmatch(r"(\d+)([MG])", text).groups()
    return int(number) << {"M": 20, "G": 30}[unit]


@dataclass(frozen=True)
class FakeDevice:
    """PyTorch on a fake device of the size that the program needs."""

    python: str

    @staticmethod
    def with_torch(python=None, _=None):
        setup = HERE.parent / "conformance" / "setup-torch.sh"
        return FakeDevice(python or run([setup]).splitlines()[-1])

    @property
    def command(self):
        """Starts Python with a fixed heap layout and no hash seed, so that a program repeats
        exactly, including the order of frees under autocast."""
        return ["setarch", "-R", self.python]

    def key(self):
        """The inputs that results depend on."""
        return digest(PROGRAMS, self.python)

    def programs(self):
        return json.loads(run([self.python, PROGRAMS, "--list"]))["programs"]

    def capacity(self, program):
        """Bytes of the device."""
        return size(program["capacity"])

    def conf(self, _, conf):
        """The settings to use."""
        return conf

    def environment(self, program):
        return {**program["environment"], "FAKE_TOTAL_BYTES": program["capacity"]}


@dataclass(frozen=True)
class Gpu:
    """PyTorch on the first GPU of this machine. The settings limit a program to its part of the
    memory; other users of the rest do not matter."""

    python: str
    name: str
    bytes: int
    listing: dict

    @staticmethod
    def with_torch(python=None, keep=None):
        """The GPU of this machine, or the one whose results are in `keep`."""
        python = python or "python3"
        known = Path(keep) / "gpu.json"
        if not known.exists():
            known.parent.mkdir(parents=True, exist_ok=True)
            known.write_text(run([python, PROGRAMS, "--list"]))
        listed = json.loads(known.read_text())
        # Without variables that only the fake device reads.
        programs = {name: one for name, one in listed["programs"].items() if not one["environment"]}
        return Gpu(python, listed["device"], listed["device_bytes"], programs)

    @property
    def command(self):
        return [self.python]

    def key(self):
        return [digest(PROGRAMS), self.name, self.bytes]

    def programs(self):
        return self.listing

    def capacity(self, _):
        return self.bytes

    def conf(self, program, conf):
        """The settings with the program's memory fraction, or their own fraction of it."""
        part = size(program["capacity"]) / self.bytes
        others = []
        for setting in filter(None, conf.split(",")):
            key, _, value = setting.partition(":")
            if key == FRACTION:
                part *= float(value)
            else:
                others.append(setting)
        return ",".join([*others, f"{FRACTION}:{part:.6f}"])

    def environment(self, _):
        return {}
