"""advise() and diff() on files, with the installed program. Needs neither PyTorch nor a GPU."""

import html
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import coalesce
from coalesce import _program, _report, _text

CHECKOUT = Path(__file__).resolve().parents[2]
TRACE = CHECKOUT / "workloads/traces/gpt2_small_amp_foreach.csv.gz"
SNAPSHOT = CHECKOUT / "workloads/tests/fixtures/later.pickle"
GIB = 1 << 30
H200 = os.environ.get("COALESCE_H200")


def printed(*arguments):
    """What the program prints."""
    command = [_program.find(), *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


class Advise(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.advice = coalesce.advise(TRACE, capacity="13GiB", time_limit=0)

    def test_the_figures_are_the_programs(self):
        flags = ["--capacity", "13GiB", "--time-limit", "0", "--json"]
        said = json.loads(printed("advise", TRACE, *flags))
        answer, advice = said["answer"], self.advice
        self.assertEqual(advice.json["answer"], answer)
        self.assertEqual(advice.verdict, answer["sentences"][0])
        self.assertIn("because of fragmentation", advice.verdict)
        self.assertEqual((advice.kind, advice.cause), ("change", "fragmentation"))
        self.assertEqual(advice.settings, answer["conf"])
        self.assertEqual(advice.available_bytes, 13 * GIB)
        self.assertEqual(advice.needs_bytes, answer["needs_bytes"])
        self.assertEqual(advice.spare_bytes, 13 * GIB - advice.needs_bytes)
        self.assertEqual(advice.missing_bytes, 0)
        self.assertEqual(advice.requested_bytes, said["lower_bound_bytes"])

    def test_settings_in_the_forms_in_which_they_are_set(self):
        line = f"PYTORCH_CUDA_ALLOC_CONF={self.advice.settings}"
        self.assertEqual(self.advice.environment, line)
        self.assertEqual(self.advice.command, f"export {line}")
        self.assertIn(f"  export {line}\n", self.advice.text)
        self.assertEqual(str(self.advice), self.advice.text)

    def test_the_page(self):
        page = self.advice.html()
        self.assertTrue(page.startswith("<!doctype html>"))
        with tempfile.TemporaryDirectory() as folder:
            path = self.advice.save_html(Path(folder, "a.html"))
            self.assertEqual(path.read_text(encoding="utf-8"), page)
            self.assertEqual([p.name for p in Path(folder).iterdir()], ["a.html"])

    def test_the_file_that_was_read_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            snapshot = Path(folder, "later.pickle")
            shutil.copy(SNAPSHOT, snapshot)
            advice = coalesce.advise(snapshot, time_limit=0)
            with self.assertRaisesRegex(coalesce.CoalesceError, "the file that was read; name"):
                advice.save_html(snapshot)
            self.assertEqual(snapshot.read_bytes(), SNAPSHOT.read_bytes())

    @unittest.skipUnless(hasattr(os, "mkfifo"), "needs pipes with names")
    def test_links_pipes_and_devices_stay(self):
        with tempfile.TemporaryDirectory() as folder:
            page, link, pipe = (Path(folder, name) for name in ("page", "link", "pipe"))
            link.symlink_to(page)
            self.advice.save_html(link)
            self.assertTrue(link.is_symlink())
            self.assertEqual(page.read_text(encoding="utf-8"), self.advice.html())
            os.mkfifo(pipe)
            reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, encoding="utf-8")
            self.advice.save_html(pipe)
            self.assertEqual(reader.communicate()[0], self.advice.html())
            self.assertTrue(pipe.is_fifo())
            code = """if True:
                from coalesce import _program
                with _program.replaced("/dev/stdout") as path, open(path, "a") as file:
                    file.write("page, ")
                print("more")"""
            with open(Path(folder, "printed"), "a") as file:
                subprocess.run([sys.executable, "-c", code], check=True, stdout=file)
            self.assertEqual(Path(folder, "printed").read_text(), "page, more\n")
            self.assertEqual(sorted(os.listdir(folder)), ["link", "page", "pipe", "printed"])

    def test_the_advice_is_told_if_the_page_cannot_be_written(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "file")
            file.touch()
            why, remedy, report = _report._saved(self.advice, file / "a.html", SNAPSHOT)
            self.assertEqual(why, self.advice.verdict)
            self.assertIn(self.advice.settings, remedy)
            self.assertTrue(report.startswith("No report: "), report)
            self.assertIn(str(SNAPSHOT), report)

    def test_names_are_printed_harmlessly(self):
        hostile = "a\x1b[2J\x9b\u202e\u2028\nb é"
        self.assertEqual(_text.printable(hostile), "a\\u{1b}[2J\\u{9b}\\u{202e}\\u{2028}\\u{a}b é")

    def test_a_notebook_shows_the_answer_and_the_settings(self):
        shown = self.advice._repr_html_()
        self.assertIn(html.escape(self.advice.verdict), shown)
        self.assertIn(html.escape(self.advice.command), shown)
        self.assertEqual(shown.count("<tr>"), 1 + len(self.advice.json["ranking"]))
        self.assertLess(len(shown), 20_000)

    def test_an_advice_does_not_change(self):
        with self.assertRaises(AttributeError):
            self.advice.settings = ""
        self.assertNotIn("doctype", repr(self.advice))

    def test_less_must_be_requested(self):
        advice = coalesce.advise(TRACE, capacity=4 * GIB, time_limit=2)
        self.assertEqual(advice.kind, "impossible")
        self.assertIsNone(advice.settings)
        self.assertIsNone(advice.command)
        self.assertIsNone(advice.environment)
        self.assertEqual(advice.missing_bytes, advice.requested_bytes - 4 * GIB)

    def test_a_snapshot_in_memory_is_as_good_as_its_file(self):
        with open(SNAPSHOT, "rb") as file:
            snapshot = pickle.load(file)
        from_dict, from_file = coalesce.advise(snapshot), coalesce.advise(str(SNAPSHOT))
        self.assertEqual(from_dict.sentences, from_file.sentences)
        self.assertEqual(from_dict.requested_bytes, from_file.requested_bytes)
        self.assertGreater(from_file.requested_bytes, 0)

    def test_the_ranks_of_a_job(self):
        job = coalesce.advise(TRACE, TRACE, capacity="13GiB", time_limit=4)
        self.assertEqual(len(job.needs), 2)
        self.assertEqual(job.needs[0].available_bytes, 13 * GIB)
        self.assertEqual(job.command, f"export PYTORCH_CUDA_ALLOC_CONF={job.settings}")
        self.assertEqual(job.verdict, job.json["sentences"][0])

    @unittest.skipUnless(H200, "COALESCE_H200 is not set")
    def test_a_recording_of_a_gpu(self):
        advice = coalesce.advise(Path(H200, "oom_mixtral.pickle.xz"))
        self.assertTrue(advice.verdict.startswith("The program died because"), advice.verdict)
        self.assertEqual(advice.json["answer"]["confidence"]["level"], "exact")
        least, most = (advice.json["answer"][f"available_{n}bytes"] for n in ("", "at_most_"))
        self.assertTrue(least <= 10.2 * GIB <= most, (least, most))


class Diff(unittest.TestCase):
    def test_what_grew(self):
        before = CHECKOUT / "workloads/traces/llama1b_bf16_ckpt.csv.gz"
        after = CHECKOUT / "workloads/traces/llama1b_bf16.csv.gz"
        found = coalesce.diff(before, after)
        said = json.loads(printed("diff", before, after, "--json"))
        self.assertEqual(found.json, said)
        self.assertEqual(found.change_bytes, said["reserved_change_bytes"])
        self.assertGreater(found.change_bytes, GIB)
        self.assertEqual(found.text, printed("diff", before, after))
        self.assertIn(found.verdict, " ".join(found.text.split()))


class Errors(unittest.TestCase):
    def test_they_have_the_programs_message(self):
        for source, said in [
            ("no/such/file.pickle", "no such file"),
            (CHECKOUT / "README.md", "README.md"),
            ({"not": "a snapshot"}, "snapshot"),
            (3, "expected the path of a file or a snapshot (a dict), not int"),
        ]:
            with self.subTest(source):
                with self.assertRaises(coalesce.CoalesceError) as caught:
                    coalesce.advise(source)
                self.assertIn(said, str(caught.exception))
                self.assertFalse(str(caught.exception).startswith("coalesce:"))
        for options, said in [
            ({"capacity": "80"}, "80"),
            ({"capacity": -1}, "positive"),
            ({"conf": "max_split_size:1"}, "max_split_size_mb"),
            ({"torch": "newest"}, "newest"),
        ]:
            with self.subTest(options):
                with self.assertRaises(coalesce.CoalesceError) as caught:
                    coalesce.advise(TRACE, **options)
                self.assertIn(said, str(caught.exception))

    def test_a_name_that_begins_with_a_dash_is_a_file(self):
        with self.assertRaisesRegex(coalesce.CoalesceError, "no such file"):
            coalesce.advise("--help")
        with self.assertRaisesRegex(coalesce.CoalesceError, "no such file"):
            coalesce.advise("-")


class Import(unittest.TestCase):
    def test_the_text_of_an_error_is_explained(self):
        text = (
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which "
            "0 bytes is free. Of the allocated memory 3.00 GiB is allocated by PyTorch, and 4.00 GiB is "
            "reserved by PyTorch but unallocated."
        )
        for what in (text, RuntimeError(text)):
            found = coalesce.explain(what)
            self.assertEqual(found.situation, "fragmentation")
            self.assertTrue(found.verdict.startswith("The request failed because of fragmentation"))
            self.assertIn("expandable_segments:True", found.command)
            self.assertIn(found.verdict.split(":")[0], found.text)
        summary = coalesce.explain("15514MiB / 16130MiB")
        self.assertIsNone(summary.situation)
        self.assertIn("616.0 MiB is free", summary.verdict)
        with self.assertRaisesRegex(coalesce.CoalesceError, "no memory figures found"):
            coalesce.explain("KeyError: 'x'")

    def test_a_program_without_pytorch_gets_no_answer(self):
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "train.py")
            script.write_text("import torch_of_nobody\n")
            with self.assertRaisesRegex(coalesce.CoalesceError, "torch_of_nobody"):
                coalesce.fits(script, "--epochs", "1", device="l4")
            with self.assertRaisesRegex(coalesce.CoalesceError, "rtx4090"):
                coalesce.fits(script, device="l5")

    def test_nothing_heavy_is_imported(self):
        code = (
            "import sys; import coalesce; print(coalesce.__version__); "
            "print(*{'torch', 'transformers', 'lightning', 'numpy'} & sys.modules.keys())"
        )
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
        version, heavy = done.stdout.decode().split("\n")[:2]
        self.assertEqual(heavy, "")
        self.assertEqual(printed("--version").split(), ["coalesce", version])

    @unittest.skipIf("torch" in sys.modules, "PyTorch is imported")
    def test_what_needs_another_package_names_it(self):
        code = (
            "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'lightning', "
            "'pytorch_lightning'])); import {}"
        )
        for statement, said in [
            ("coalesce; coalesce.record()", "CoalesceError: recording needs PyTorch"),
            ("coalesce.transformers", "ImportError: coalesce.transformers needs transformers"),
            ("coalesce.lightning", "ImportError: coalesce.lightning needs Lightning"),
            ("coalesce_torch", "ImportError: coalesce_torch needs PyTorch"),
        ]:
            command = [sys.executable, "-c", code.format(statement)]
            done = subprocess.run(command, stderr=subprocess.PIPE, encoding="utf-8")
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
