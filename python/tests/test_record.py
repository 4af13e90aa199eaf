"""record() at the death of a program, with a stand-in for PyTorch. Needs no GPU."""

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

# What record() uses of PyTorch. request() fails: the device has 80 bytes, of which 7 are free.
TORCH = """
import sys, types
__version__ = "2.9.1+cu130"
class OutOfMemoryError(RuntimeError): pass
observers = []
_C = types.SimpleNamespace(
    _cuda_isHistoryEnabled=lambda: False, _cuda_attach_out_of_memory_observer=observers.append)
memory = types.SimpleNamespace(
    _record_memory_history=lambda **options: None,
    _snapshot=lambda: {"segments": [], "device_traces": []})
cuda = types.SimpleNamespace(
    OutOfMemoryError=OutOfMemoryError, is_available=lambda: True, is_initialized=lambda: True,
    memory=memory, current_device=lambda: 2, mem_get_info=lambda device: (7, 80),
    get_device_name=lambda device: f"GPU {device}",
    get_per_process_memory_fraction=lambda device: 0.3)
distributed = types.SimpleNamespace(is_available=lambda: False)
def request(allowed=40):
    for observer in observers:
        observer(1, 50, allowed, 7)
    raise OutOfMemoryError("CUDA out of memory.")
"""


class Death(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        (self.folder / "torch.py").write_text(TORCH)
        # On PATH or not, the command is to be the same.
        (self.folder / "bin").mkdir()
        name = "coalesce.exe" if os.name == "nt" else "coalesce"
        shutil.copy(sys.executable, self.folder / "bin" / name)

    def run_program(self, code, path="bin", **env):
        path = str(self.folder / path)
        kept = {name: it for name, it in os.environ.items() if not name.startswith("PYTORCH_")}
        roots = [str(self.folder), str(Path(__import__("coalesce").__file__).parents[1])]
        env = {**kept, "PATH": path, "PYTHONPATH": os.pathsep.join(roots), **env}
        code = "import coalesce, torch\n" + textwrap.dedent(code)
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, cwd=self.folder, env=env, stderr=subprocess.PIPE, encoding="utf-8"
        )

    def said(self, *arguments, **options):
        """What the program's last lines say."""
        stderr = self.run_program(*arguments, **options).stderr
        lines = stderr.splitlines()
        said = [line for line in lines if line.startswith("coalesce: ")]
        self.assertEqual(lines[len(lines) - len(said) :], said, "below the traceback")
        return said

    def steps(self, name="snapshot-rank0.pickle", program="coalesce"):
        path = self.folder / name
        return [
            f"coalesce: Snapshot: {path}",
            "coalesce: Why memory ran out and which settings help: "
            f"{program} advise {subprocess.list2cmdline([str(path)])}",
        ]

    def noted(self, name="snapshot-rank0.pickle"):
        return pickle.loads((self.folder / name).read_bytes())["coalesce"]

    def test_an_uncaught_error_names_the_snapshot_and_the_command(self):
        code = "coalesce.record()\ntorch.request()"
        self.assertEqual(self.said(code, RANK="3"), self.steps("snapshot-rank3.pickle"))
        module = f"{sys.executable} -m coalesce"
        self.assertEqual(self.said(code, path="none"), self.steps(program=module))

    def test_the_end_of_the_block_names_them(self):
        code = "with coalesce.record():\n    torch.request()"
        self.assertEqual(self.said(code), self.steps())
        code = """
        with coalesce.record(), coalesce.record("second"):
            try:
                torch.request()
            except torch.OutOfMemoryError as error:
                raise ValueError("the step failed")
        """
        self.assertEqual(self.said(code), self.steps("second/snapshot-rank0.pickle"))

    def test_another_error_or_a_caught_one_is_not_explained(self):
        caught = """
        try:
            torch.request()
        except torch.OutOfMemoryError:
            pass
        """
        for end in ("", "raise ValueError('another')"):
            self.assertEqual(self.said("coalesce.record()" + textwrap.dedent(caught) + end), [])
        stopped = "with coalesce.record():\n    pass\ntorch.request()"
        self.assertEqual(self.said(stopped), [])

    def test_a_snapshot_that_cannot_be_written_is_not_named(self):
        (self.folder / "file").touch()
        done = self.run_program("coalesce.record('file')\ntorch.request()")
        self.assertIn("the snapshot was not written", done.stderr)
        self.assertNotIn("Snapshot:", done.stderr)

    def test_the_snapshot_has_what_pytorch_does_not_write(self):
        conf = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}
        self.run_program("coalesce.record()\ntorch.request()", **conf)
        device = {"total_bytes": 80, "free_bytes": 7, "limit_bytes": 40}
        names = {"torch": "2.9.1+cu130", "device": 1, "device_name": "GPU 1"}
        self.assertEqual(self.noted(), {**names, **device, **conf})

    @unittest.skipIf(os.name == "nt", "links need a privilege there")
    def test_a_link_leads_to_the_snapshot(self):
        (self.folder / "end.pickle").symlink_to("elsewhere.pickle")
        self.run_program("coalesce.record().dump('end.pickle')")
        self.assertTrue((self.folder / "end.pickle").is_symlink())
        self.assertEqual(self.noted("elsewhere.pickle"), self.noted("end.pickle"))

    def test_what_cannot_be_found_out_is_left_out(self):
        dump = "coalesce.record().dump('end.pickle')"
        self.run_program(dump)
        names = {"torch": "2.9.1+cu130", "device": 2, "device_name": "GPU 2"}
        device = {"total_bytes": 80, "free_bytes": 7}
        self.assertEqual(self.noted("end.pickle"), {**names, **device, "limit_bytes": 24})
        self.run_program("del torch.cuda.get_per_process_memory_fraction\n" + dump)
        self.assertEqual(self.noted("end.pickle"), {**names, **device})
        self.run_program("torch.cuda.is_initialized = lambda: False\n" + dump)
        self.assertEqual(self.noted("end.pickle"), {"torch": "2.9.1+cu130"})


if __name__ == "__main__":
    unittest.main()
