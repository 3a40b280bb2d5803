"""examples/shares.py: a join is kept, brought up to date, and read offline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

SHOWN = ["  Oracle: 5.5", "  Big Blue: 183.0", "  Big Blue: 184.25", "the dearest: Big Blue"]


def run(target: str, path: Path) -> list[str]:
    command = [sys.executable, str(ROOT / "examples" / "shares.py"), target, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_my_shares_and_their_names(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store", "--durability", "none")
    try:
        first = run(server.address, tmp_path / "shares.db")
    finally:
        server.stop()
    assert first == ["rows of the first sync: 3", "rows with a new name: 1", *SHOWN]
    offline, *output = run(server.address, tmp_path / "shares.db")
    assert offline.startswith("offline: ")
    assert output == SHOWN
