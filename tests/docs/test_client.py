"""docs/reference/client.md and examples/offline.py do what they say, with a running server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import client_sdk
from tests.support.docs.markdown import ROOT, blocks, code, read, table
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

PAGE = read("docs/reference/client.md")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("client") / "store")
    yield server
    server.stop()


def test_the_page_s_python(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    try:
        for block in blocks(PAGE, "python"):
            exec(block.text.replace("localhost:7181", server.address), names)
        assert names["copies"]["dear"].rows() == [{"symbol": "IBM", "price": 184.5}]
    finally:
        names["copies"].close()
        names["client"].close()


def test_the_page_names_all_errors_of_copies() -> None:
    documented = {code(row[0]) for row in table(PAGE, "raised", "")}
    errors = {kind.__name__ for kind in client_sdk.CopyError.__subclasses__()}
    assert documented == errors


def _offline(target: str, path: Path) -> str:
    command = [sys.executable, str(ROOT / "examples" / "offline.py"), target, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example(server: ServerProcess, tmp_path: Path) -> None:
    nowhere = "127.0.0.1:1"
    path = tmp_path / "phone.db"
    assert "nothing has come yet" in _offline(nowhere, path)
    first = _offline(server.address, path)
    assert "heavy: changed, 2 rows came" in first and "Leiden: 30.0" in first
    away = _offline(nowhere, path)
    assert away.startswith("offline: ") and "heavy now: 2" in away and "'Gouda'" in away
    assert "heavy now: 4" in _offline(server.address, path)


def test_the_example_of_drivers(server: ServerProcess, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "drivers.py"), server.address, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Ann, in a tunnel: 1 a lamp (done); 2 a chair",
        "  waiting: ['queued']",
        "Bob changed {'item': 'two lamps'} and Ann {'done': True}",
        "Ann, after both are out: 1 two lamps (done); 2 a chair",
        "Bob, in a tunnel again: 1 two lamps (done); 2 a blue chair",
        "Ann, after both patches: 1 two lamps (done); 2 a blue chair (done)",
        "Ann, after the orders were altered: 1 two lamps (done); 2 a red chair (done); 3 a table "
        "(1 row sent)",
        "  order 1: two lamps, floor 0",
        "  order 2: a red chair, floor 0",
        "  order 3: a table, floor 4",
        "Ann's phone notes: u order 2, Smit is now Smit-de Boer",
        "Ann's phone notes: u order 3, Smit is now Smit-de Boer",
        "The office erased customer 7 and orders [1]",
        "Bob, after that: 2 a red chair (done); 3 a table",
        "  doors: [(2, 'Smit-de Boer'), (3, 'Smit-de Boer')]",
        "  refused: orders, ERASED, 0 rows left",
        "  refused: customers, ERASED, 0 rows left",
        "In the store: ['Smit-de Boer']",
    ]
