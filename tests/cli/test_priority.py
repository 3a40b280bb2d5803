"""Commands that work beside servers for long yield to them, and commands start fast."""

from __future__ import annotations

import os
import subprocess
import sys

from psoup.cli.priority import yield_to_servers
from tests.conftest import ROOT

_PROGRAM = """
import os, sys
import psoup.cli
from psoup.cli.priority import begin_process, yield_to_servers
begin_process()
before = os.nice(0)
yield_to_servers()
print(min(before + 10, 19) == os.nice(0), "pandas" in sys.modules)
"""


def test_a_command_yields_and_does_not_import_pandas() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_a_process_that_runs_commands_beside_other_work_keeps_its_priority() -> None:
    before = os.nice(0)
    yield_to_servers()
    assert os.nice(0) == before
