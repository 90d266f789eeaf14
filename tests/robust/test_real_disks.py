"""File systems that are full or read-only, for real: in a name space of mounts of its own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MOUNTS = ("unshare", "--user", "--map-root-user", "--mount")
SCRIPT = Path(__file__).with_name("disks.py")


def _may_mount():
    if shutil.which("unshare") is None:
        return False
    tried = [*MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _may_mount(), reason="file systems cannot be mounted here")
@pytest.mark.parametrize("case", ["full", "read-only"])
def test_a_disk_that_takes_no_more_leaves_the_model_and_is_named(case, tmp_path):
    command = [*MOUNTS, sys.executable, str(SCRIPT), case, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "as promised" in done.stdout
