"""Where compiled libraries are kept, and what is loaded. Needs no PyTorch and no compiler."""

import contextlib
import importlib.util
import io
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import coalesce

# By its path: the package itself needs PyTorch.
SOURCE = Path(coalesce.__file__).parents[1] / "coalesce_torch/_cache.py"
specification = importlib.util.spec_from_file_location("cache", SOURCE)
cache = importlib.util.module_from_spec(specification)
specification.loader.exec_module(cache)

LIBRARY = b"a library"
OTHER_USER = os.geteuid() + 1000

# Loads in another process. LIBRARY is the code that build() runs.
PROCESS = """
import importlib.util, os, sys, time
specification = importlib.util.spec_from_file_location("cache", sys.argv[1])
cache = importlib.util.module_from_spec(specification)
specification.loader.exec_module(cache)
cache.ctypes.CDLL = str
def build(path):
    path.write_bytes(b"a library")
    exec(sys.argv[2])
cache.load("torch-2.9", build)
"""


class Cache(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name).resolve()
        self.temporary = self.scratch / "tmp"
        self.temporary.mkdir()
        self.caches = self.scratch / "caches"
        self.folder = self.caches / "coalesce"
        environment = {"XDG_CACHE_HOME": str(self.caches), "TMPDIR": str(self.temporary)}
        for change in (
            mock.patch.dict(os.environ, environment),
            mock.patch.object(tempfile, "tempdir", str(self.temporary)),
            # What would be loaded is returned.
            mock.patch.object(cache.ctypes, "CDLL", lambda path: Path(path).read_bytes()),
        ):
            change.start()
            self.addCleanup(change.stop)

    def load(self):
        """Loads the library. Returns whether it was compiled, and what was said."""
        compiled = []

        def build(path):
            compiled.append(path)
            path.write_bytes(LIBRARY)

        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(cache.load("torch-2.9", build), LIBRARY)
        return bool(compiled), said.getvalue()

    def kept(self):
        (kept,) = self.folder.glob("*.so")
        return kept

    def assert_not_used(self, *reason):
        """Asserts that the library is compiled anew, elsewhere, and that a message says why."""
        for _ in range(2):
            compiled, said = self.load()
            self.assertTrue(compiled)
            for part in (*reason, "XDG_CACHE_HOME"):
                self.assertIn(str(part), said)
            self.assertEqual(os.listdir(self.temporary), [])

    def start(self, code=""):
        command = [sys.executable, "-c", PROCESS, str(SOURCE), code]
        return subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8")

    def test_it_is_compiled_once_into_a_private_folder(self):
        self.assertEqual(self.load(), (True, ""))
        self.assertEqual(self.load(), (False, ""))
        for folder in (self.caches, self.folder):
            self.assertEqual(folder.stat().st_mode & 0o777, 0o700)

    def test_a_folder_that_others_can_read_becomes_private(self):
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o755)
        self.assertEqual(self.load(), (True, ""))
        self.assertEqual(self.folder.stat().st_mode & 0o777, 0o700)

    def test_a_library_other_than_what_was_compiled_is_not_loaded(self):
        self.load()
        for contents in (b"", LIBRARY[:-1], LIBRARY + b"!", LIBRARY.replace(b"b", b"c")):
            self.kept().write_bytes(contents)
            compiled, said = self.load()
            self.assertTrue(compiled)
            self.assertIn(f"{self.kept()} is not what was compiled", said)
        self.assertEqual(self.load(), (False, ""))

    def test_folders_that_others_can_write_to_are_not_used(self):
        self.load()
        for folder in (self.folder, self.caches, self.scratch):
            for mode in (0o777, 0o702, 0o720):
                private = folder.stat()
                folder.chmod(mode)
                # A group of many users.
                with mock.patch.object(cache.grp, "getgrgid", side_effect=KeyError):
                    # The folder for temporary files, which is below, cannot be used either.
                    if folder == self.scratch:
                        self.assertRaises(cache.Unusable, self.load)
                    else:
                        self.assert_not_used("other users can write to", folder, "chmod go-w")
                folder.chmod(private.st_mode)
        # Nobody can replace files of others here, but anybody can add some.
        self.folder.chmod(0o1777)
        self.assert_not_used("not for this user alone")
        self.folder.chmod(0o700)
        self.caches.chmod(0o1777)
        self.assertEqual(self.load(), (False, ""))

    def test_the_own_group_of_a_user_is_the_user(self):
        self.load()
        self.caches.chmod(0o770)
        user = cache.pwd.getpwuid(os.geteuid()).pw_name
        for name, members, is_used in (
            (user, [], True),
            (user, ["eve"], False),
            ("all", [], False),
        ):
            group = mock.Mock(gr_name=name, gr_mem=members)
            with mock.patch.object(cache.grp, "getgrgid", return_value=group):
                compiled, _ = self.load()
            self.assertEqual(compiled, not is_used, name)

    @unittest.skipIf(os.geteuid(), "only root can give files away")
    def test_folders_links_and_files_of_others_are_not_used(self):
        self.load()
        for folder in (self.folder, self.caches):
            os.chown(folder, OTHER_USER, -1)
            self.assert_not_used(folder, "belongs to another user")
            os.chown(folder, 0, -1)
        os.chown(self.kept(), OTHER_USER, -1)
        self.assertTrue(self.load()[0])
        self.assertEqual(self.kept().stat().st_uid, 0)
        # The folder behind the link is good, but its owner can change where the link leads.
        moved = self.caches.rename(self.scratch / "moved")
        self.caches.symlink_to(moved)
        os.chown(self.caches, OTHER_USER, -1, follow_symlinks=False)
        self.assert_not_used(self.caches, "belongs to another user")

    def test_a_link_is_as_good_as_every_folder_on_its_way(self):
        between = self.scratch / "between"
        target = self.scratch / "target"
        between.mkdir(), target.mkdir()
        self.caches.symlink_to("between/../between/link")
        (between / "link").symlink_to(target)
        self.assertEqual(self.load(), (True, ""))
        self.assertEqual(self.load(), (False, ""))
        between.chmod(0o777)
        self.assert_not_used("other users can write to", between)
        self.caches.unlink()
        self.caches.symlink_to(self.caches)
        self.assertRaisesRegex(cache.Unusable, "circle", cache._check, self.caches)

    def test_a_folder_that_cannot_be_made_is_not_used(self):
        self.caches.write_text("a file")
        compiled, said = self.load()
        self.assertTrue(compiled)
        self.assertIn(str(self.caches), said)
        # Relative paths do not count.
        home = self.scratch / "home"
        with mock.patch.dict(os.environ, XDG_CACHE_HOME="caches", HOME=str(home)):
            self.load()
        self.assertEqual(len(list((home / ".cache/coalesce").glob("*.so"))), 1)

    def test_what_a_killed_process_left_is_removed(self):
        for refused in (False, True):
            if refused:
                self.caches.chmod(0o777)
            killed = self.start("os.kill(os.getpid(), 9)")
            self.assertIn("not kept" if refused else "", killed.communicate()[1])
            self.assertEqual(killed.returncode, -signal.SIGKILL)
            left = self.temporary if refused else self.folder
            self.assertTrue(list(left.rglob("*.unfinished")))
            self.assertTrue(self.load()[0])
            self.assertEqual(list(left.rglob("*.unfinished")), [])
        self.assertEqual(os.listdir(self.temporary), [])

    def test_processes_do_not_disturb_each_other(self):
        slowly = "time.sleep(0.3); print('compiled', file=sys.stderr)"
        for refused in (False, True):
            if refused:
                self.caches.chmod(0o777)
            started = [self.start(slowly) for _ in range(4)]
            said = [process.communicate()[1] for process in started]
            self.assertEqual([process.returncode for process in started], [0] * 4, said)
            compiled = sum("compiled\n" in text for text in said)
            self.assertEqual(compiled, 4 if refused else 1)
        self.assertEqual(os.listdir(self.temporary), [])


if __name__ == "__main__":
    unittest.main()
