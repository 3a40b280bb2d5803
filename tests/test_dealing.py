"""Tests that share a fixture run in one process, and files in one process each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

CONFTEST = """
import json
import os
import pytest
from tests.support.dealing import Dealing, group_tests

@pytest.fixture(scope="session")
def spark():
    return os.getpid()

def pytest_collection_modifyitems(config, items):
    group_tests(items, name_groups=config.option.loadgroup)

def pytest_xdist_make_scheduler(config, log):
    return Dealing(config, log)

def pytest_runtest_logreport(report):
    if report.when == "call" and hasattr(report, "node"):
        print("ran", json.dumps([report.nodeid, report.node.gateway.id]))
"""

TESTS = """
import pytest

def test_alone():
    pass

@pytest.mark.parametrize("address", ["a@b", "c"])
def test_with_spark(spark, address):
    pass
"""


@pytest.mark.long
def test_a_shared_fixture_is_made_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    names = [f"test_{number}.py" for number in range(6)]
    for name in names:
        (tmp_path / name).write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-s", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--numprocesses", "2", "--dist", "loadgroup"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.partition("ran ")[2] for line in done.stdout.splitlines() if "ran " in line]
    processes = dict(json.loads(line) for line in lines if line)
    sharing = {test: process for test, process in processes.items() if "with_spark" in test}
    assert set(sharing) == {
        f"{name}::test_with_spark[{address}]@spark" for name in names for address in ("a@b", "c")
    }
    assert len(set(sharing.values())) == 1
    alone = {test: process for test, process in processes.items() if test not in sharing}
    assert set(alone) == {f"{name}::test_alone" for name in names}
    assert set(alone.values()) - set(sharing.values()), "the other process has work as well"
