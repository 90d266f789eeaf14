"""Every number of small runs is what it was, up to rounding."""

import subprocess
import sys
from pathlib import Path

RUNS = Path(__file__).parent / "golden" / "runs.py"


def test_every_number_is_what_it_was():
    """In a process of its own, whose arithmetic is the same on every processor."""
    found = subprocess.run([sys.executable, str(RUNS), "--close"], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
