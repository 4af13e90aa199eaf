"""record() and the callbacks in real trainings that run out of memory, each in its own process.

Needs full PyTorch with both trainers on the simulated device:

    $(scripts/conformance/setup-torch.sh --trainers) python/tests/test_training.py
"""

import os
import pickle
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch

PACKAGES = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PACKAGES))

import coalesce

TENSORS = """
import sys, torch, coalesce
def mebibytes(n):
    return torch.empty(n << 20, dtype=torch.uint8, device="cuda")
"""
HUGGING_FACE = """
import torch
from coalesce.transformers import OomReport
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
torch.backends.cuda.enable_cudnn_sdp(False)
class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return {"input_ids": torch.arange(128), "labels": torch.arange(128)}
def train(**options):
    config = GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=1000)
    args = TrainingArguments("out", per_device_train_batch_size=64, max_steps=3, report_to=[],
                             save_strategy="no", **options)
    callbacks = [OomReport("reports", time_limit=0)]
    model = GPT2LMHeadModel(config)
    Trainer(model=model, args=args, train_dataset=Tokens(), callbacks=callbacks).train()
"""
LIGHTNING = """
import torch
from coalesce.lightning import OomReport
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader
class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)])
    def training_step(self, batch, index):
        return self.layers(batch).sum()
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
def fit():
    data = DataLoader(torch.ones(40000, 1024), batch_size=20000)
    callbacks = [OomReport("reports", time_limit=0)]
    trainer = Trainer(max_epochs=1, callbacks=callbacks, accelerator="gpu", devices=1, logger=False,
                      enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(Model(), data)
"""


class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_program(self, code, *, memory="1G", **env):
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTORCH_")}
        return subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.folder,
            env={**kept, "PYTHONPATH": str(PACKAGES), "FAKE_TOTAL_BYTES": memory, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def files(self, folder="."):
        return sorted(path.name for path in (self.folder / folder).glob("*.*"))

    def lines(self, done):
        return [line for line in done.stderr.splitlines() if line.startswith("coalesce: ")]

    def assert_report(self, done, rank):
        """The process died, and its last lines say what `coalesce advise` says of the snapshot."""
        self.assertEqual(done.returncode, 1, done.stderr)
        reports = self.folder / "reports"
        names = [f"advice-rank{rank}.html", f"snapshot-rank{rank}.pickle"]
        self.assertEqual(self.files("reports"), names)
        found = coalesce.advise(reports / names[1], time_limit=0)
        said = self.lines(done)
        self.assertEqual(len(said), 3, done.stderr)
        self.assertEqual(said[0], f"coalesce: {found.verdict}")
        self.assertTrue(found.verdict.startswith("The program died because"), found.verdict)
        if found.settings is None:
            self.assertIn(" must go.", said[1])
            self.assertEqual(said[1], f"coalesce: {found.sentences[1]}")
        else:
            self.assertIn(f"ettings {found.environment}", said[1])
            self.assertNotIn("below", said[1])
        report = (reports / names[0]).resolve()
        command = f"coalesce advise {reports.resolve() / names[1]}"
        self.assertEqual(said[2], f"coalesce: Report: {report}; as text: {command}")
        self.assertTrue(report.read_text(encoding="utf-8").startswith("<!doctype html>"))
        # Below the traceback; a progress bar may end after it.
        traceback = done.stderr.index("OutOfMemoryError: CUDA out of memory")
        self.assertGreater(done.stderr.index(said[0]), traceback)

    def assert_silent(self, done):
        self.assertEqual(self.lines(done), [])
        self.assertNotIn("advice-rank0.html", self.files("reports"))


class Record(Training):
    def test_a_failed_request_leaves_a_snapshot(self):
        code = """
with coalesce.record("snapshots") as recording:
    kept = mebibytes(300)
    for _ in range(2):
        try:
            mebibytes(900)
        except torch.OutOfMemoryError:
            pass
    assert recording.oom_path == recording.snapshot_path, recording.oom_path
    recording.dump("end.pickle")
assert not recording.is_active and not torch._C._cuda_isHistoryEnabled()
recording.stop()
try:
    mebibytes(900)
except torch.OutOfMemoryError:
    pass
try:
    recording.dump()
except coalesce.CoalesceError as error:
    print(error)
"""
        done = self.run_program(TENSORS + code, RANK="3")
        self.assertEqual((done.returncode, self.lines(done)), (0, []), done.stderr)
        self.assertIn("nothing is recorded", done.stdout)
        self.assertEqual(self.files("snapshots"), ["snapshot-rank3.pickle"])
        found = coalesce.advise(self.folder / "snapshots/snapshot-rank3.pickle", time_limit=0)
        self.assertEqual(found.json["answer"]["failure"]["request_bytes"], 900 << 20)
        self.assertEqual(found.cause, "too_much_memory")
        self.assertEqual(found.json["check"]["ooms"], 2)
        holder = found.json["holdings"]["holders"][0]
        self.assertEqual(holder["bytes"], 300 << 20)
        self.assertTrue(coalesce.diff(self.folder / "end.pickle", self.folder / "end.pickle"))

    def test_the_command_that_an_error_names_knows_the_limit(self):
        code = """
torch.cuda.set_per_process_memory_fraction(0.5)
with coalesce.record():
    kept = mebibytes(300), mebibytes(300)
"""
        done = self.run_program(TENSORS + code)
        self.assertEqual(done.returncode, 1, done.stderr)
        snapshot = self.folder.resolve() / "snapshot-rank0.pickle"
        proved, named, command = self.lines(done)
        self.assertIn("The process limits itself to 0.50 GiB", proved)
        self.assertEqual(named, f"coalesce: Snapshot: {snapshot}")
        self.assertTrue(command.endswith(f": coalesce advise {snapshot}"), command)
        found = coalesce.advise(snapshot, time_limit=0)
        self.assertEqual(found.available_bytes, 512 << 20)
        self.assertIn("limit: 512.0 MiB, as coalesce.record() noted", found.json["conditions"])
        noted = pickle.loads(snapshot.read_bytes())["coalesce"]
        self.assertEqual(noted["torch"], torch.__version__)
        self.assertEqual((noted["total_bytes"], noted["limit_bytes"]), (1 << 30, 512 << 20))

    def test_the_newest_operations_are_kept(self):
        code = """
recording = coalesce.record(max_entries=50)
for _ in range(100):
    mebibytes(1)
recording.dump("end.pickle")
"""
        self.assertEqual(self.run_program(TENSORS + code).returncode, 0)
        snapshot = pickle.loads((self.folder / "end.pickle").read_bytes())
        self.assertEqual(len(snapshot["device_traces"][0]), 50)

    def test_what_goes_wrong_is_a_warning(self):
        code = """
from pathlib import Path
Path("file").touch()
recording = coalesce.record("file")
try:
    mebibytes(2000)
except torch.OutOfMemoryError:
    assert recording.oom_path is None
    print("caught")
"""
        for options in ("default", "error"):
            done = self.run_program(TENSORS + code, PYTHONWARNINGS=options)
            self.assertEqual((done.returncode, done.stdout), (0, "caught\n"), done.stderr)
            self.assertIn("memory ran out, and the snapshot was not written", done.stderr)
        code = "assert not coalesce.record().is_active; print('goes on')"
        done = self.run_program(TENSORS + code, FAKE_DEVICE_COUNT="0")
        self.assertEqual(done.stdout, "goes on\n", done.stderr)
        self.assertIn("memory is not recorded: PyTorch finds no GPU", done.stderr)

    def test_a_history_that_someone_else_records_goes_on(self):
        code = """
torch.cuda.memory._record_memory_history(max_entries=7)
coalesce.record().stop()
assert torch._C._cuda_isHistoryEnabled()
"""
        done = self.run_program(TENSORS + code)
        self.assertEqual(done.returncode, 0, done.stderr)


class Fits(Training):
    def test_a_program_fits_with_enough_memory(self):
        script = self.folder / "train.py"
        script.write_text(
            "import torch\n"
            "model = torch.nn.Linear(4096, 4096).cuda()\n"
            "optimizer = torch.optim.AdamW(model.parameters())\n"
            "for step in range(100):\n"
            "    model(torch.randn(8192, 4096, device='cuda')).square().mean().backward()\n"
            "    optimizer.step()\n"
            "    optimizer.zero_grad()\n"
        )
        found = coalesce.fits(script, memory="4GiB")
        self.assertTrue(found)
        self.assertEqual(found.most_reserved_bytes, found.reserved_bytes)
        self.assertIn("The program fits", found.text)
        needed = found.device_bytes
        self.assertTrue(coalesce.fits(script, memory=needed))
        lacking = coalesce.fits(script, memory=needed // 2)
        self.assertFalse(lacking)
        self.assertEqual(lacking.verdict, "too_large")
        self.assertGreater(lacking.missing_bytes, 0)


class HuggingFace(Training):
    def test_an_uncaught_error_is_explained(self):
        done = self.run_program(HUGGING_FACE + "train()", memory="200M")
        self.assert_report(done, rank=0)

    def test_a_caught_error_is_not(self):
        code = HUGGING_FACE + "train(auto_find_batch_size=True); print('done')"
        done = self.run_program(code, memory="200M")
        self.assertTrue(done.stdout.endswith("done\n"), done.stderr)
        self.assert_silent(done)
        self.assertIn("snapshot-rank0.pickle", self.files("reports"))

    def test_neither_is_another_error_after_it(self):
        code = """
try:
    train()
except torch.OutOfMemoryError:
    pass
raise ValueError("another")
"""
        done = self.run_program(HUGGING_FACE + code, memory="200M")
        self.assertIn("ValueError: another", done.stderr)
        self.assert_silent(done)


class Lightning(Training):
    def test_an_uncaught_error_is_explained(self):
        self.assert_report(self.run_program(LIGHTNING + "fit()"), rank=0)

    def test_a_caught_error_claims_nothing(self):
        code = """
try:
    fit()
except torch.OutOfMemoryError:
    print("done")
"""
        done = self.run_program(LIGHTNING + code)
        self.assertTrue(done.stdout.endswith("done\n"), done.stderr)
        self.assertEqual(self.lines(done), [])


if __name__ == "__main__":
    assert torch.cuda.is_available(), "needs PyTorch on the simulated device or on a GPU"
    unittest.main()
