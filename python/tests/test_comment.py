"""The action .github/actions/gpu-memory with a stand-in for GitHub's program `gh`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".github/actions/gpu-memory/comment.sh"

# Answers by what is asked, notes each call, and keeps what would be posted.
GH = r"""#!/bin/sh
echo "$*" >>calls
case $* in
  *"/pulls "*) cat pull ;;
  *"/runs "*) echo 11 ;;
  "run download "*) mkdir -p "$9" && cp "$3.json" "$9/gpu-memory.json" ;;
  *"--paginate"*) cat comment ;;
  *"--silent"*) eval last='$'$(($# - 1)); cp "${last#body=@}" posted ;;
esac
"""


@pytest.fixture
def comment(tmp_path, monkeypatch):
    def run(pull="7\n", existing="", artifacts=(11, 22)):
        gh = tmp_path / "gh"
        gh.write_text(GH)
        gh.chmod(0o755)
        (tmp_path / "pull").write_text(pull)
        (tmp_path / "comment").write_text(existing)
        for artifact in artifacts:
            peaks = {"peak_requested_bytes": artifact << 20, "peak_reserved_bytes": artifact << 20}
            tests = {"test_a": {**peaks, "holders": [], "outcome": "passed"}}
            report = {"format": 1, "torch": "2.11", "device": "h100", "tests": tests}
            (tmp_path / f"{artifact}.json").write_text(json.dumps(report))
        event = {"ARTIFACT": "gpu-memory", "RUN": "22", "WORKFLOW": "5", "MAIN": "main"}
        head = {"HEAD": "forker:a branch", "SHA": "abc", "GITHUB_REPOSITORY": "we/ours"}
        path = os.pathsep.join([str(tmp_path), os.path.dirname(sys.executable), os.environ["PATH"]])
        env = {**event, **head, "PATH": path}
        subprocess.run([SCRIPT], cwd=tmp_path, env=env, check=True)
        return (tmp_path / "calls").read_text().splitlines()

    return run


def test_the_table_is_posted_once_and_then_replaced(comment, tmp_path):
    first, *_, posted = comment()
    assert first.startswith(
        "api --method GET repos/we/ours/pulls -f state=open -f head=forker:a br"
    )
    assert posted.startswith("api --method POST repos/we/ours/issues/7/comments ")
    mark, *_, row = (tmp_path / "posted").read_text().splitlines()
    assert mark == "<!-- GPU memory of tests -->"
    assert row.startswith("| `test_a` | 11.00 MiB (11.00 MiB reserved) | 22.00 MiB ")
    assert comment(existing="99\n")[-1].startswith(
        "api --method PATCH repos/we/ours/issues/comments/99 "
    )


@pytest.mark.parametrize("lacking", [{"pull": ""}, {"artifacts": (22,)}, {"artifacts": (11,)}])
def test_nothing_is_posted_if_there_is_nothing_to_compare(comment, tmp_path, lacking):
    comment(**lacking)
    assert not (tmp_path / "posted").exists()
