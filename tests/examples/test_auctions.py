"""examples/auctions.py: NEXMark as views and registrations answers as its queries do."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from client_sdk import Client
from tests.conftest import ROOT
from tests.support.real.auctions import NEXMARK
from tests.support.server.process import ServerProcess

EXAMPLE = ROOT / "examples" / "auctions.py"
_NAMES = runpy.run_path(str(EXAMPLE))
QUERIES: dict[str, str] = _NAMES["QUERIES"]

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]


def test_nexmark_as_views_is_nexmark_written_out(tmp_path: Path, shared_data: Path) -> None:
    server = ServerProcess(tmp_path / "store", "--durability", "none")
    folder = shared_data / "nexmark"
    try:
        command = [sys.executable, str(EXAMPLE), server.address]
        done = subprocess.run(
            [*command, str(folder)], capture_output=True, text=True, timeout=120, cwd=ROOT
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0].startswith("00:00:05  Q1 ")
        with Client(server.address) as client:
            assert len(client.views()) == len(_NAMES["VIEWS"])
            for name in QUERIES:
                assert _agrees(client, name, _instants(folder)) >= 3, f"{name}: nothing to compare"
    finally:
        server.stop()


def _agrees(client: Client, name: str, instants: list[datetime]) -> int:
    """The number of instants at which a query has an answer, which is that of its text."""
    handle, answer = client.register(QUERIES[name], key=name), 0
    for now in instants:
        through = client.invoke(handle, as_of=now, knowledge="today").rows
        written = client.ask(NEXMARK[name][0], as_of=now, knowledge="today").rows
        assert _bag(through) == _bag(written), (name, now)
        answer += bool(through)
    return answer


def _instants(folder: Path) -> list[datetime]:
    """Instants at which something happens, and others just after."""
    read = _NAMES["read"](folder)
    dated = sorted({row["ts"] for rows in read.values() for row in rows})
    return sorted({*dated[::6], *(at + timedelta(microseconds=1) for at in dated[::17])})


def _bag(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)
